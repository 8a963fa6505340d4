# SPDX-License-Identifier: Apache-2.0
"""A library that is built again does not change under a process that has loaded the old one."""

from __future__ import annotations

from pathlib import Path

from build_scripts.build_plugins import put


def test_a_library_in_use_keeps_its_content(tmp_path: Path) -> None:
    built, output = tmp_path / "built.so", tmp_path / "lib" / "library.so"
    built.write_bytes(b"old" * 4096)
    put(built, output)
    with output.open("rb") as in_use:
        built.write_bytes(b"new")
        put(built, output)
        assert in_use.read() == b"old" * 4096
    assert output.read_bytes() == b"new"
    assert [path.name for path in output.parent.iterdir()] == ["library.so"]
