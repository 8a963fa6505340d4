# SPDX-License-Identifier: Apache-2.0
"""The C++ runtime's C interface through ctypes, as another language would bind it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Handle = ctypes.c_void_p


class Limits(ctypes.Structure):
    """hspec_rt_limits of runtime_c.h."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("vocab_size", ctypes.c_int32),
        ("num_drafts", ctypes.c_int32),
        ("page_size", ctypes.c_int32),
        ("page_bytes", ctypes.c_int64),
        ("max_rows", ctypes.c_int32),
        ("max_tokens", ctypes.c_int32),
        ("max_seq_len", ctypes.c_int32),
        ("has_drafter", ctypes.c_int32),
    )


class EngineOptions(ctypes.Structure):
    """hspec_rt_engine_options."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("device", ctypes.c_int32),
        ("cuda_graphs", ctypes.c_int32),
        ("kv_cache_memory", ctypes.c_int64),
        ("kv_cache_fraction", ctypes.c_double),
        ("plugin_library", ctypes.c_char_p),
        ("tensorrt_library", ctypes.c_char_p),
    )


TEXT_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
IDS_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t)
DECODE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, TEXT_SINK, ctypes.c_void_p
)
ASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
ENCODE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, IDS_SINK, ctypes.c_void_p)


class Codec(ctypes.Structure):
    """hspec_rt_codec."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("user", ctypes.c_void_p),
        ("decode", DECODE),
        ("has_text", ASK),
        ("is_byte", ASK),
        ("encode", ENCODE),
    )


class RuntimeOptions(ctypes.Structure):
    """hspec_rt_runtime_options."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("eos_ids", ctypes.POINTER(ctypes.c_int32)),
        ("num_eos_ids", ctypes.c_size_t),
        ("codec", ctypes.POINTER(Codec)),
        ("max_batch_size", ctypes.c_int32),
        ("max_num_tokens", ctypes.c_int32),
        ("max_chunk", ctypes.c_int32),
        ("prefix_cache", ctypes.c_int32),
    )


class LogitBias(ctypes.Structure):
    """hspec_rt_logit_bias."""

    _fields_ = (("token", ctypes.c_int32), ("bias", ctypes.c_double))


class Request(ctypes.Structure):
    """hspec_rt_request."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("prompt_ids", ctypes.POINTER(ctypes.c_int32)),
        ("num_prompt_ids", ctypes.c_size_t),
        ("max_tokens", ctypes.c_int64),
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("seed", ctypes.c_int64),
        ("stop", ctypes.POINTER(ctypes.c_char_p)),
        ("num_stop", ctypes.c_size_t),
        ("stop_token_ids", ctypes.POINTER(ctypes.c_int32)),
        ("num_stop_token_ids", ctypes.c_size_t),
        ("ignore_eos", ctypes.c_int32),
        ("drafts", ctypes.c_int32),
        ("num_drafts", ctypes.c_int32),
        ("draft_source", ctypes.c_int32),
        ("min_tokens", ctypes.c_int64),
        ("repetition_penalty", ctypes.c_double),
        ("presence_penalty", ctypes.c_double),
        ("frequency_penalty", ctypes.c_double),
        ("logit_bias", ctypes.POINTER(LogitBias)),
        ("num_logit_bias", ctypes.c_size_t),
        ("bad_words", ctypes.POINTER(ctypes.c_char_p)),
        ("num_bad_words", ctypes.c_size_t),
        ("logprobs", ctypes.c_int32),
        ("priority", ctypes.c_int32),
        ("streaming", ctypes.c_int32),
    )


class Update(ctypes.Structure):
    """hspec_rt_update."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("id", ctypes.c_int64),
        ("token_ids", ctypes.POINTER(ctypes.c_int32)),
        ("logprobs", ctypes.POINTER(ctypes.c_float)),
        ("num_tokens", ctypes.c_size_t),
        ("result", ctypes.c_void_p),
    )


class Stats(ctypes.Structure):
    """hspec_rt_stats."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("steps", ctypes.c_int64),
        ("failed_steps", ctypes.c_int64),
        ("step_seconds", ctypes.c_double),
        ("prompt_tokens", ctypes.c_int64),
        ("new_tokens", ctypes.c_int64),
        ("cached_tokens", ctypes.c_int64),
        ("preemptions", ctypes.c_int64),
        ("accepted_length", ctypes.c_double),
        ("followed_steps", ctypes.c_int64),
    )


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Update))
_POINTERS = ("code", "found", "needed", "where", "fix")


@dataclass(frozen=True)
class CFault:
    """One fault as C callers read it."""

    code: str
    found: str
    needed: str
    where: str
    fix: str


class CError(Exception):
    """What a call told; the text is the library's own."""

    def __init__(self, text: str, faults: tuple[CFault, ...]) -> None:
        super().__init__(text)
        self.faults = faults


@dataclass
class Answer:
    """One request's news so far."""

    request_id: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    updates: int = 0
    finish_reason: str = ""
    final_ids: list[int] = field(default_factory=list)
    accepted_lengths: list[int] = field(default_factory=list)
    error: str = ""


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "surrogateescape")


class CRuntime:
    """The library, opened.

    Args:
        path: libhspec_trt_runtime.so.
    """

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self._restype(("error_text", *(f"error_{name}" for name in _POINTERS)), ctypes.c_char_p)
        self._restype(("folder_backend", "result_finish_reason"), ctypes.c_char_p)
        self._restype(("error_count", "folder_eos_ids", "result_token_ids", "result_accepted_lengths"), ctypes.c_size_t)
        self._restype(("result_error",), ctypes.c_void_p)

    def _restype(self, names: Sequence[str], kind: Any) -> None:
        for name in names:
            getattr(self.library, f"hspec_rt_{name}").restype = kind

    def call(self, name: str, *arguments: object) -> None:
        """Call a function whose last parameter is the error. Raises `CError`."""
        error = Handle()
        if getattr(self.library, f"hspec_rt_{name}")(*arguments, ctypes.byref(error)):
            raise self.taken(error)

    def taken(self, error: Handle) -> CError:
        """An error handle as an exception; frees it."""
        made = CError(_decoded(self.library.hspec_rt_error_text(error)), self._faults(error))
        self.library.hspec_rt_error_free(error)
        return made

    def _faults(self, error: Handle) -> tuple[CFault, ...]:
        read = [getattr(self.library, f"hspec_rt_error_{name}") for name in _POINTERS]
        count = self.library.hspec_rt_error_count(error)
        return tuple(CFault(*(_decoded(part(error, ctypes.c_size_t(i))) for part in read)) for i in range(count))

    def open_folder(self, path: str | bytes, *, whole: bool = False) -> Handle:
        """An opened engine folder."""
        folder = Handle()
        raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
        self.call("folder_open", raw, ctypes.c_int32(whole), ctypes.byref(folder))
        return folder

    def engine_options(self, **values: object) -> EngineOptions:
        """Engine options, with these set."""
        return self._initialised(EngineOptions(), "engine_options_init", values)

    def runtime_options(self, **values: object) -> RuntimeOptions:
        """Runtime options, with these set."""
        return self._initialised(RuntimeOptions(), "runtime_options_init", values)

    def request(self, prompt: Sequence[int], **values: object) -> Request:
        """A request, with these fields set."""
        ids = (ctypes.c_int32 * len(prompt))(*prompt)
        return self._initialised(
            Request(), "request_init", {"prompt_ids": ids, "num_prompt_ids": len(prompt), **values}
        )

    def _initialised(self, made: Any, init: str, values: dict[str, object]) -> Any:
        getattr(self.library, f"hspec_rt_{init}")(ctypes.byref(made))
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def load_engine(self, folder: Handle, **options: object) -> Handle:
        """A loaded engine."""
        engine = Handle()
        self.call("engine_load", folder, ctypes.byref(self.engine_options(**options)), ctypes.byref(engine))
        return engine

    def create(self, engine: Handle, **options: object) -> Handle:
        """A runtime; takes the engine."""
        runtime = Handle()
        self.call("runtime_create", engine, ctypes.byref(self.runtime_options(**options)), ctypes.byref(runtime))
        return runtime

    def submit(self, runtime: Handle, request: Request) -> tuple[int, Answer]:
        """Hand a request over; the answer fills in the thread that steps."""
        answer, number = Answer(), ctypes.c_int64()
        answer.callback = CALLBACK(lambda _, update: self._note(answer, update.contents))  # type: ignore[attr-defined]
        arguments = (ctypes.byref(request), answer.callback, None, ctypes.byref(number))  # type: ignore[attr-defined]
        self.call("runtime_submit", runtime, *arguments)
        answer.request_id = number.value
        return number.value, answer

    def _note(self, answer: Answer, update: Update) -> None:
        answer.updates += 1
        answer.token_ids += update.token_ids[: update.num_tokens]
        answer.logprobs += update.logprobs[: update.num_tokens]
        if update.result:
            result = Handle(update.result)
            ids, lengths = ctypes.POINTER(ctypes.c_int32)(), ctypes.POINTER(ctypes.c_int64)()
            count = self.library.hspec_rt_result_token_ids(result, ctypes.byref(ids))
            answer.final_ids = ids[:count]
            count = self.library.hspec_rt_result_accepted_lengths(result, ctypes.byref(lengths))
            answer.accepted_lengths = lengths[:count]
            answer.finish_reason = _decoded(self.library.hspec_rt_result_finish_reason(result))
            if told := self.library.hspec_rt_result_error(result):
                answer.error = _decoded(self.library.hspec_rt_error_text(Handle(told)))

    def step(self, runtime: Handle) -> bool:
        """One step in this thread; False where there was nothing to run."""
        ran = ctypes.c_int32()
        self.call("runtime_step", runtime, ctypes.byref(ran))
        return bool(ran.value)

    def stats(self, runtime: Handle) -> Stats:
        """The runtime's figures."""
        stats = Stats(size=ctypes.sizeof(Stats))
        self.library.hspec_rt_runtime_stats(runtime, ctypes.byref(stats))
        return stats

    def free(self, kind: str, handle: Handle) -> None:
        """Free a handle of that kind."""
        getattr(self.library, f"hspec_rt_{kind}_free")(handle)
