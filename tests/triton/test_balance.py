# SPDX-License-Identifier: Apache-2.0
"""Instances of a model keep their numbers of open answers level."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hspec_trt.serving.triton import balance
from hspec_trt.serving.triton.balance import Balance


def waits(one: Balance, seconds: float = 0.05) -> bool:
    """Whether the instance stays inside; it is let out at the end."""
    closing = threading.Event()
    thread = threading.Thread(target=one.wait, args=(closing,))
    thread.start()
    thread.join(seconds)
    inside = thread.is_alive()
    closing.set()
    thread.join()
    return inside


def test_the_busier_instance_waits(tmp_path: Path) -> None:
    first, second = Balance(tmp_path / "board", 0), Balance(tmp_path / "board", 1)
    assert not waits(first)
    first.note(1)
    assert waits(first)
    assert not waits(second)
    second.note(1)
    assert not waits(first)


def test_an_instance_waits_until_the_other_has_caught_up(tmp_path: Path) -> None:
    first, second = Balance(tmp_path / "board", 0), Balance(tmp_path / "board", 1)
    first.note(2)
    thread = threading.Thread(target=first.wait, args=(threading.Event(),))
    thread.start()
    second.note(1)
    thread.join(0.05)
    assert thread.is_alive()
    second.note(2)
    thread.join(5)
    assert not thread.is_alive()


def test_an_instance_whose_engine_died_gets_nothing_more(tmp_path: Path) -> None:
    first, second = Balance(tmp_path / "board", 0), Balance(tmp_path / "board", 1)
    first.note(float("inf"))
    second.note(5)
    assert waits(first)
    assert not waits(second)
    second.note(float("inf"))
    assert not waits(first), "both refuse, and do not wait for each other"


def test_an_instance_that_died_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_STALE_SECONDS", 0.1)
    first, _ = Balance(tmp_path / "board", 0), Balance(tmp_path / "board", 1)
    time.sleep(0.15)
    first.note(5)
    assert not waits(first)


def test_the_last_one_takes_the_board_away(tmp_path: Path) -> None:
    first, second = Balance(tmp_path / "board", 0), Balance(tmp_path / "board", 1)
    first.close()
    assert (tmp_path / "board").exists()
    second.close()
    assert not (tmp_path / "board").exists()
