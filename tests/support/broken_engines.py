# SPDX-License-Identifier: Apache-2.0
"""Engine folders that must be refused, or may seem so: each way in which a manifest, a file or a path can be wrong.

Both runtimes open them; tests say what Python tells, and that C++ tells the same.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hspec_trt.bundle.folder import SAMPLE_BLOCK_BYTES, SAMPLE_BLOCKS
from hspec_trt.bundle.manifest import MANIFEST_FILE
from tests.support.engine_folders import MANIFEST, write_engine

FILES = {"graph.onnx": b"graph", "tokenizer.json": b"{}"}

JSON_TEXTS: tuple[bytes, ...] = (
    b"",
    b"[1]",
    b"{",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' + b"[" * 199 + b"]" * 199 + b"}",
    b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"a":' + b"[" * 201 + b"]" * 201 + b"}",
    b"{} x",
    b" \t\r\n{} \n",
    b"\x0b{}",
    b'{"a":1,}',
    b'{"a":01}',
    b'{"a":-}',
    b'{"a":-0}',
    b'{"a":1.}',
    b'{"a":.5}',
    b'{"a":1e}',
    b'{"a":1E+05,"b":1e-400,"c":1e400}',
    b'{"a":nan}',
    b'{"a":NaN,"b":Infinity,"c":-Infinity}',
    b'{"a":-NaN}',
    b'{"a":9223372036854775807,"b":-9223372036854775808}',
    b'{"a":9223372036854775808}',
    b'{"a":-9223372036854775809}',
    b"[9223372036854775808]",
    b'{"a":tru}',
    b'{"a":"\x01"}',
    b'{"a":"\x7f"}',
    b'{"a":"\xff"}',
    b'{"a":"\xc0\x80"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\xf4\x90\x80\x80"}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12"}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\ud800\\u0041"}',
    b'{"a":"\\udc00"}',
    b'{"a":"\\ud83d\\ude00\\/\\b\\u00e9\\u0000"}',
    b'{"a":1}{"a":1}',
    b'{"a" 1}',
    b"{a:1}",
    b'{"format_version":1,"format_version":2,"contract_version":1}',
    b'{"format_version":"1"}',
    b'{"format_version":true}',
    b'{"format_version":1.0}',
    b'{"format_version":[1]}',
    b'{"format_version":{}}',
    b'{"format_version":"' + b"long \xc3\xa9" * 30 + b'"}',
    b'{"format_version":1,"contract_version":99}',
)

_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    7,
    2**31,
    1.5,
    float("inf"),
    "x",
    "'",
    "llama",
    [],
    [1],
    ["x"],
    {},
    {"kind": 3},
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed_manifests(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The manifest with each of its values replaced by others, left out, or joined by an unknown key."""
    for path in _places(whole):
        if isinstance(_at(whole, path), dict):
            changed = copy.deepcopy(whole)
            _at(changed, path)["surprise"] = 1
            yield changed
        if not path:
            continue
        for value in _VALUES:
            changed = copy.deepcopy(whole)
            _at(changed, path[:-1])[path[-1]] = value
            yield changed
        changed = copy.deepcopy(whole)
        del _at(changed, path[:-1])[path[-1]]
        yield changed


def plain_manifest(folder: Path) -> dict[str, Any]:
    """The folder's manifest as plain values."""
    read: dict[str, Any] = json.loads((folder / MANIFEST_FILE).read_bytes())
    return read


def write_manifest(folder: Path, content: bytes | dict[str, Any]) -> None:
    """Put another manifest into a folder."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / MANIFEST_FILE).write_bytes(text)


def _with_files(folder: Path, names: list[str]) -> None:
    plain = plain_manifest(folder)
    record = plain["files"]["graph.onnx"]
    write_manifest(folder, plain | {"files": dict.fromkeys(names, record)})


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _replaced_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKS: dict[str, Callable[[Path], object]] = {
    "whole": lambda folder: None,
    "missing file": lambda folder: (folder / "graph.onnx").unlink(),
    "short file": lambda folder: _write(folder / "graph.onnx", b"grap"),
    "changed file": lambda folder: _write(folder / "graph.onnx", b"grapj"),
    "all files": lambda folder: [_write(folder / name, b"other content") for name in FILES],
    "file is a folder": lambda folder: _replaced_by_folder(folder / "graph.onnx"),
    "file is a dangling link": lambda folder: (
        (folder / "graph.onnx").unlink(),
        (folder / "graph.onnx").symlink_to("nowhere"),
    ),
    "file is a link to itself": lambda folder: (
        (folder / "graph.onnx").unlink(),
        (folder / "graph.onnx").symlink_to("graph.onnx"),
    ),
    "extra file": lambda folder: _write(folder / "letter.txt", b"dear"),
    "no manifest": lambda folder: (folder / MANIFEST_FILE).unlink(),
    "manifest is a folder": lambda folder: _replaced_by_folder(folder / MANIFEST_FILE),
    "names elsewhere": lambda folder: _with_files(folder, ["../graph.onnx", "/etc/passwd", "a/b", "a/", ".", "..", ""]),
    "names with odd characters": lambda folder: _with_files(
        folder, ["a\0b", "é\n/", 'it\'s "quoted"/', "€ x", "\x7f/😀"]
    ),
    "name too long": lambda folder: _with_files(folder, ["n" * 300]),
    "name too long after a fault": lambda folder: _with_files(folder, ["gone", "n" * 300]),
    "long hostile name": lambda folder: _with_files(folder, ["/" + "long" * 50]),
}


def large_engine(folder: Path) -> None:
    """A folder with a file that is sampled, changed between two samples: only a whole check finds it."""
    content = bytearray(4 * SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES + 77)
    write_engine(folder, {"weights.safetensors": bytes(content)})
    content[SAMPLE_BLOCK_BYTES + 5] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(content))


def paths_to_nothing(parent: Path) -> list[str]:
    """Paths that lead to no engine folder."""
    (parent / "file").write_bytes(b"")
    (parent / "empty").mkdir()
    not_text = os.fsdecode(os.fsencode(parent) + b"/\xff\xfe")
    paths = [parent / "nothing", parent / "file", parent / "empty", parent / ("n" * 300), parent / "file" / "below"]
    odd = [f"{parent}//empty/./", f"{parent}/empty/../nothing", f"//{parent}/empty", "", ".", "./nothing//"]
    return [*map(str, paths), not_text, *odd]


def engine(folder: Path) -> Path:
    """A whole engine folder."""
    write_engine(folder, FILES, manifest=MANIFEST)
    return folder
