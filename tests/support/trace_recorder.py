# SPDX-License-Identifier: Apache-2.0
"""Records the cases of `tests.support.trace_scripts` on their engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hspec_trt.bundle import open_engine
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.loading import load_session
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.session import Session
from tests.support.engines import make_engine
from tests.support.recorder import Trace, record
from tests.support.trace_scripts import CASES, ENGINES, Texts


class Recorder:
    """Records cases; engines are built once, into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}

    def record(self, name: str) -> Trace:
        """The trace of a case."""
        case = CASES[name]
        session = self._session(case.engine)
        script = case.make(session.limits, self._texts(session))
        session.allocate(case.num_pages)
        return record(session, replace(script, draft_max_position=case.draft_max_position))

    def _session(self, engine: str) -> Session:
        if engine not in self._sessions:
            pair, build = ENGINES[engine]
            folder = make_engine(self._folder / engine, pair(), build=build)
            self._sessions[engine] = load_session(open_engine(folder), RuntimeOptions(num_threads=1)).session
        return self._sessions[engine]

    def _texts(self, session: Session) -> Texts:
        def text(prompt: tuple[int, ...], params: SamplingParams) -> tuple[int, ...]:
            session.allocate(40)
            core, updates = EngineCore(session), []
            core.add(core.make(prompt, replace(params, drafts="off"), updates.append))
            while core.step():
                pass
            return (*prompt, *(token for update in updates for token in update.token_ids))

        return text
