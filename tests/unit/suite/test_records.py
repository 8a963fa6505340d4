# SPDX-License-Identifier: Apache-2.0
"""The folder of a comparison: it goes on where it stopped, and never over what is not its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hspec_trt.errors import BuildError, RequestError
from hspec_trt.suite.records import Record, ResultFolder, Timing

SETTINGS: dict[str, object] = {"seed": 1, "per_task": None}
RECORD = Record("d", "qa", "k", 3, 4, "length", 2, 4, (2, 1), (1, 0), 0.5)
TIMING = Timing(((1.0, 0.1), (1.5, 0.2)), ((2.0, 0.3), (2.5, 0.4)), ((3.0, 0.5), (3.5, 0.6)), 0.5)

OLD_TIMING = b'{"d": {"plain": 1.0, "verify": 2.0, "full": 3.0, "rest": 4.0, "load": 0.5}}'


def filled(path: Path) -> ResultFolder:
    folder = ResultFolder(path, SETTINGS)
    folder.claim({"d": "1"})
    folder.add(RECORD)
    folder.add_timing("d", TIMING)
    return folder


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    filled(tmp_path / "r")
    again = ResultFolder(tmp_path / "r", SETTINGS)
    again.claim({"d": "1", "e": "2"})
    assert (again.records(), again.timings()) == ([RECORD], {"d": TIMING})
    again.add_timing("e", TIMING)
    assert set(again.timings()) == {"d", "e"}
    assert not [path for path in (tmp_path / "r").iterdir() if path.suffix == ".part"]


def test_a_record_that_was_cut_is_dropped(tmp_path: Path) -> None:
    folder = filled(tmp_path / "r")
    records = tmp_path / "r" / "records.jsonl"
    records.write_bytes(records.read_bytes() + b'{"drafter": "d", "ta')
    assert folder.records() == [RECORD]
    folder.add(RECORD)
    assert folder.records() == [RECORD] * 2


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b'{"d": {"plain": 1}}', b"7\n", OLD_TIMING])
@pytest.mark.parametrize("name", ["settings.json", "engines.json", "records.jsonl", "timing.json"])
def test_files_that_were_edited_are_faults(name: str, content: bytes, tmp_path: Path) -> None:
    filled(tmp_path / "r")
    (tmp_path / "r" / name).write_bytes(content + b"\n")
    with pytest.raises(RequestError, match="R501"):
        again = ResultFolder(tmp_path / "r", SETTINGS)
        again.claim({"d": "1"})
        again.records()
        again.timings()


def test_other_settings_and_other_engines_are_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "r")
    with pytest.raises(RequestError, match=r"R501.*other seed"):
        ResultFolder(tmp_path / "r", SETTINGS | {"seed": 2})
    with pytest.raises(RequestError, match=r"R501.*another engine named 'd'"):
        folder.claim({"d": "2"})


def test_a_place_that_is_no_result_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "table.md").write_text("dear")
    with pytest.raises(RequestError, match=r"R501.*holds no results"):
        ResultFolder(tmp_path / "letters", SETTINGS)
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["table.md"]
    with pytest.raises(BuildError, match="B005"):
        ResultFolder(tmp_path / "letters" / "table.md", SETTINGS)
