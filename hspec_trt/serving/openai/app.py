# SPDX-License-Identifier: Apache-2.0
"""The HTTP application: which path does what, and what errors look like."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from hspec_trt import __version__
from hspec_trt.errors import HspecError, RequestError
from hspec_trt.serving.openai.faults import DRAINING, OUR_FAULT, error_reply, of_reading, of_validation
from hspec_trt.serving.openai.gate import Gate
from hspec_trt.serving.openai.replies import ChatCompletion, Completion, Model, ModelList
from hspec_trt.serving.openai.schema import ChatRequest, CompletionRequest
from hspec_trt.serving.openai.service import Service

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(service: Service) -> ASGIApp:
    """The application over a service, behind its gate."""
    app = FastAPI(title="hspec_trt", version=__version__, docs_url=None, redoc_url=None)

    @app.post("/v1/completions", response_model=Completion)
    async def completions(body: CompletionRequest, request: Request) -> Response:
        return await service.complete(body, request.state.request_id)

    @app.post("/v1/chat/completions", response_model=ChatCompletion)
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        return await service.chat(body, request.state.request_id)

    @app.get("/v1/models")
    async def models() -> ModelList:
        return service.models()

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Model:
        return service.model(name)

    @app.get("/health")
    async def health() -> Response:
        """200 while requests are taken; 503 while the server drains, or once the engine is dead."""
        fault = service.llm.fault or (DRAINING if service.desk.draining else None)
        return JSONResponse({"status": "ok"}) if fault is None else error_reply(fault)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"content-type": _METRICS_TYPE})

    _explain_errors(app)
    return Gate(app, options=service.options, metrics=service.metrics)


def _explain_errors(app: FastAPI) -> None:
    @app.exception_handler(HspecError)
    async def ours(_request: Request, error: HspecError) -> Response:
        return error_reply(error)

    @app.exception_handler(RequestValidationError)
    async def wrong_body(_request: Request, error: RequestValidationError) -> Response:
        return error_reply(of_validation(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path}"[:200]
        if error.status_code == 404:
            return error_reply(RequestError("R436", f"there is no {what}"))
        if error.status_code == 405:
            allowed = dict(error.headers or {}).get("Allow", "")
            reply = error_reply(RequestError("R437", f"{what} is not how it is called", needed=allowed))
            reply.headers["allow"] = allowed
            return reply
        return error_reply(of_reading(error.__cause__))

    @app.exception_handler(Exception)
    async def bug(_request: Request, _error: Exception) -> Response:
        return error_reply(OUR_FAULT)
