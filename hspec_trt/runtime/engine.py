# SPDX-License-Identifier: Apache-2.0
"""An engine folder brought to life: session, step loop, tokenizer, template. `LLM` adds the thread and the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hspec_trt.bundle import EngineFolder, open_engine
from hspec_trt.runtime.chat import ChatTemplate
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.loading import MemoryTable, load_session
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.session import Session
from hspec_trt.runtime.tokenizer import Tokenizer
from hspec_trt.runtime.trace import Trace

_TEXT_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class Engine:
    """What one folder holds, ready to step.

    Attributes:
        tokenizer, chat_template: None where the folder has none.
    """

    folder: EngineFolder
    core: EngineCore
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate | None
    memory: MemoryTable


def load_engine(path: Path, options: RuntimeOptions | None = None) -> Engine:
    """Load an engine folder.

    Raises:
        LoadError: L001 to L042.
    """
    return make_engine(open_engine(path), options or RuntimeOptions())


def make_engine(
    folder: EngineFolder, options: RuntimeOptions, *, around: Callable[[Session], Session] = lambda session: session
) -> Engine:
    """Bring an open engine folder to life.

    Args:
        around: puts something between the step loop and the session.

    Raises:
        LoadError: L020, L030 to L042.
    """
    files = {name: data for name in _TEXT_FILES if (data := folder.text(name)) is not None}
    tokenizer = Tokenizer(files["tokenizer.json"]) if "tokenizer.json" in files else None
    chat_template = ChatTemplate.from_files(files) if tokenizer else None
    trace = Trace(options.trace) if options.trace else None
    loaded = load_session(folder, options)
    eos_ids = frozenset(folder.manifest.target.eos_token_ids)
    tokenizer_file = folder.file("tokenizer.json") if tokenizer else None
    guides = GuideMaker(tokenizer_file, folder.manifest.target.vocab_size, sorted(eos_ids))
    core = EngineCore(
        around(loaded.session),
        eos_ids=eos_ids,
        decoder=tokenizer,
        guides=guides,
        options=options.scheduler,
        trace=trace,
    )
    return Engine(folder, core, tokenizer, chat_template, loaded.memory)
