# SPDX-License-Identifier: Apache-2.0
"""A small engine for tests of the server: the golden H-Spec pair with every option, a byte-level tokenizer, and a chat
template that knows tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.golden_pair import GOLDEN
from tests.support.tiny_tokenizer import EOS_ID, tokenizer_files

CASE = GOLDEN / "hspec_qwen3"
LIMITS = BuildConfig(max_batch_size=8, max_seq_len=400, max_num_tokens=128, page_size=16)
TOOL_TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}as <tool_call>\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments.items() | list }}{% endfor %}\n{% endfor %}"
    "assistant: "
)


def build_tiny_engine(folder: Path) -> Path:
    """8 rows, 400 tokens a request, 7 drafts a step; the end token is id 2."""
    target = shutil.copytree(CASE / "target", folder / "target")
    config = json.loads((target / "config.json").read_text()) | {"eos_token_id": EOS_ID}
    (target / "config.json").write_text(json.dumps(config))
    (target / "generation_config.json").unlink(missing_ok=True)
    for name, content in tokenizer_files(config["vocab_size"]).items():
        (target / name).write_bytes(content)
    (target / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    build(target, CASE / "drafter", folder / "tiny", LIMITS)
    return folder / "tiny"
