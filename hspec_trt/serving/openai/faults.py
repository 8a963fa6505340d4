# SPDX-License-Identifier: Apache-2.0
"""Errors as OpenAI's clients know them: HTTP status, and ``{"error": {message, type, param, code}}`` with our code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from hspec_trt.errors import FaultGroup, HspecError, RequestError
from hspec_trt.runtime.checks import OPTION_OF_CODE

_STATUS: Final = {
    "R301": 500,
    "R302": 500,
    "R303": 503,
    "R304": 503,
    "R310": 500,
    "R432": 415,
    "R433": 413,
    "R434": 408,
    "R435": 401,
    "R436": 404,
    "R437": 405,
    "R438": 404,
    "R439": 429,
    "R440": 503,
    "R441": 500,
}
"""HTTP status by code; every other code is the request's own fault, 400."""
_TYPES: Final = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}
_MAX_MESSAGE: Final = 2000
_MAX_FAULTS: Final = 8

OUR_FAULT: Final = RequestError("R441", "a fault of ours; the server goes on, and its log says more")
DRAINING: Final = RequestError("R440", "the server is shutting down", fix="Ask another server")


def status_of(error: HspecError) -> int:
    """HTTP status of a fault."""
    return _STATUS.get(error.code, 400)


def error_body(error: HspecError) -> dict[str, object]:
    """The body of an error reply, or the data of the last event of a stream."""
    status = status_of(error)
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    message = "\n".join(fault.message for fault in error.faults[:_MAX_FAULTS])
    return {
        "error": {
            "message": _clean(message),
            "type": kind,
            "param": _clean(_param(error)) or None,
            "code": error.code,
            "errors": [{"code": one.code, "message": _clean(one.message)} for one in error.faults[:_MAX_FAULTS]],
        }
    }


def error_reply(error: HspecError) -> JSONResponse:
    """A whole reply."""
    status = status_of(error)
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status, headers)


def of_validation(error: RequestValidationError) -> HspecError:
    """What FastAPI found wrong with a body: R430 no JSON, R431 fields that are missing, unknown or of a wrong type."""
    faults = error.errors()
    first = faults[0]
    if first["type"] == "json_invalid":
        found = f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}"
        return RequestError("R430", found, needed="a JSON object")
    words: dict[str, list[str]] = {}
    for fault in faults:  # of a union every branch complains; the one that came furthest was meant
        said = words.setdefault(_place(fault["loc"][1:], error.body, fault["type"]), [])
        text = "there is no such field" if fault["type"] == "extra_forbidden" else fault["msg"]
        if text not in said:
            said.append(text)
    for place in [one for one in words if any(other.startswith(f"{one}.") for other in words)]:
        del words[place]
    told = [
        RequestError("R431", f"{'' if place else 'the body: '}{' or '.join(said)}", where=place)
        for place, said in list(words.items())[:_MAX_FAULTS]
    ]
    return told[0] if len(told) == 1 else FaultGroup(told)


def of_reading(cause: BaseException | None) -> RequestError:
    """R430 for a body that could not be read at all."""
    if isinstance(cause, UnicodeDecodeError):
        found = f"the body is not UTF-8: byte 0x{cause.object[cause.start]:02x} at {cause.start}"
    elif isinstance(cause, RecursionError):
        found = "the body is nested too deeply"
    elif isinstance(cause, ValueError):
        found = "the body holds a number with too many digits"
    else:
        found = "the body cannot be read"
    return RequestError("R430", found, needed="a JSON object")


def _place(path: Sequence[int | str], body: object, kind: str) -> str:
    """A place in a body as ``messages.0.content``, without the names of union branches that pydantic puts in."""
    parts, at = [], body
    for part in path:
        inside = part in at if isinstance(at, dict) else isinstance(at, list) and part in range(len(at))
        if inside:
            at = at[part]  # type: ignore[index]
            parts.append(str(part))
    if kind == "missing" and path:
        parts.append(str(path[-1]))
    return ".".join(parts)


def _param(error: HspecError) -> str:
    return error.where if error.code in ("R431", "R442") else OPTION_OF_CODE.get(error.code, "")


def _clean(text: str) -> str:
    """Text that can be sent: what a client wrote may hold half characters, or be long."""
    whole = text.encode(errors="replace").decode()
    return whole if len(whole) <= _MAX_MESSAGE else whole[:_MAX_MESSAGE] + " ..."
