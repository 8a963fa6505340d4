# SPDX-License-Identifier: Apache-2.0
"""What a newcomer does to the command line: wrong paths, closed streams, full disks, two builds at once, kills.

Whatever happens, there is a message and no traceback, the exit code says so, and nothing half-written stays.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hspec_trt.bundle import open_engine
from hspec_trt.cli import main
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from tests.support.tiny_models import t_rand, write_target

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "hspec_qwen3"
LIMITS = ("--max-batch-size", "4", "--page-size", "16", "--max-num-tokens", "64")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
AS_READER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Takes root's right to read and write everything, under which permissions could not be tested in a container."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(arguments)` in this process, standing in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, told.out, told.err)

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Run:
    """`spawn(arguments)` in a process of its own; `before` goes before the interpreter, the rest to `subprocess`."""

    def call(
        *arguments: str, before: tuple[str, ...] = (), env: Mapping[str, str] | None = None, **streams: object
    ) -> Ended:
        command = [*before, sys.executable, "-m", "hspec_trt.cli", *arguments]
        piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        done = subprocess.run(  # type: ignore[call-overload]
            command, cwd=tmp_path, env=ENVIRONMENT | (env or {}), timeout=120, check=False, **piped
        )
        out, err = (text.decode(errors="replace") if text else "" for text in (done.stdout, done.stderr))
        assert "Traceback" not in out + err, err
        return Ended(done.returncode, out, err)

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target `t` and an engine `e` of it."""
    folder = tmp_path_factory.mktemp("made")
    write_target(folder / "t", *t_rand(vocab_size=300))
    build(folder / "t", None, folder / "e", BuildConfig(max_batch_size=4, page_size=16, max_num_tokens=64))
    return folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/nonexistent", "C010"),
        ("", "C010"),
        (".", "C010"),
        ("/dev/null", "C010"),
        ("/etc/passwd", "C014"),
        ("empty", "C003"),
        ("\udcff\udcfe", "C010"),
        ("a" * 300, "C010"),
    ],
)
def test_what_is_no_target(target: str, code: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ended = run("build", "--target", target, "--output", "e")
    assert ended.code == 2
    assert f"error[{code}]" in ended.err or (len(target) == 300 and "too long" in ended.err)
    assert left_in(tmp_path) == ["empty"]


@pytest.mark.parametrize(
    ("output", "force", "code"),
    [
        ("", False, "B001"),
        (".", False, "B001"),
        ("/", True, "B002"),
        ("file", False, "B001"),
        ("file", True, "B002"),
        ("file/e", False, "B003"),
        ("none/e", False, "B003"),
        ("a" * 300, False, "B005"),
        ("a" * 250, False, "B005"),
        ("link", True, "B002"),
        ("t", True, "B002"),
        ("/proc/e", False, "B0"),
        ("not UTF-8 \udcff", False, "B005"),
    ],
)
def test_outputs_that_are_refused(output: str, force: bool, code: str, run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(made / "e")
    shutil.copytree(made / "t", tmp_path / "t")
    before = left_in(tmp_path), left_in(tmp_path / "t")
    ended = run("build", "--target", "t", "--output", output, *LIMITS, *(["--force"] if force else []))
    assert ended.code == 2
    assert f"error[{code}" in ended.err
    assert (left_in(tmp_path), left_in(tmp_path / "t")) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("output", ["sp ace é 日本 😀", "t/inside", "../{name}/x/", "new\nline", "--", "{here}"])
def test_outputs_that_are_fine(output: str, run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "t", tmp_path / "t")
    output = output.format(name=tmp_path.name, here=tmp_path / "e")
    assert run("build", "--target", "t", "--output", output, *LIMITS).code == 0
    assert json.loads(run("run", "--prompt", "é", "--max-tokens", "3", "--json", "--", output).out)["finish_reason"]
    assert not [name for name in left_in(tmp_path) if name.startswith(".")]


def test_force_into_the_folder_one_stands_in_or_under(spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / "e" / "sub").mkdir()
    target = ("build", "--target", str(made / "t"), *LIMITS, "--force")
    for place, output in (("e/sub", ".."), ("e", ".")):
        inside = ("env", "-C", place)
        assert spawn(*target, "--output", output, before=inside).code == 0
        assert left_in(tmp_path) == ["e"]
        open_engine(tmp_path / "e", whole=True)
        assert "sub" not in left_in(tmp_path / "e")
        (tmp_path / "e" / "sub").mkdir()


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--max-batch-size", "9" * 30, "B021"),
        ("--max-seq-len", "0", "B022"),
        ("--max-seq-len", "-3", "B022"),
        ("--max-num-tokens", "9" * 30, "B026"),
        ("--max-num-tokens", "7", "B020"),
        ("--page-size", "0", "B023"),
        ("--num-drafts", "-1", "B024"),
    ],
)
def test_numbers_that_cannot_be(option: str, value: str, code: str, run: Run, made: Path, tmp_path: Path) -> None:
    ended = run("build", "--target", str(made / "t"), "--output", "e", option, value)
    assert (ended.code, f"error[{code}]: " in ended.err) == (2, True), ended.err
    assert " to 0 or" not in ended.err, "a remedy that cannot be taken"
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--prompt-ids", "--5"],
        ["--prompt-ids", "1²"],
        ["--prompt-ids", "9" * 5000],
        ["--prompt-ids", "1", "--threads", "0"],
        ["--prompt-ids", "1", "--threads", "-1"],
        ["--prompt-ids", "1", "--threads", "100000"],
        ["--prompt-ids", "1", "--system", "you"],
        ["--prompt", "a", "--raw", "--system", "you"],
        ["--prompt", "\udcff"],
        ["--prompt", "", "--raw"],
        ["--raw"],
        ["--prompt-ids", "1", "--seed", str(2**63)],
        ["--prompt-ids", "1", "--num-drafts", "-1"],
        ["--prompt", "a", "--draft-source", "drafter"],
    ],
)
def test_requests_that_are_refused(arguments: list[str], run: Run, made: Path) -> None:
    ended = run("run", str(made / "e"), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(("error[", "Usage: "))
    assert len(ended.err) < 600


@pytest.mark.parametrize(
    "arguments",
    [
        ["--prompt-ids", "x"],
        ["--prompt", "\udcff"],
        ["--prompt-ids", "1", "--threads", "0"],
        ["--prompt-ids", ",".join(["1"] * 256)],
        ["--seed", "-1"],
        ["--seed", str(2**63)],
    ],
)
def test_checks_that_are_refused(arguments: list[str], run: Run, made: Path) -> None:
    ended = run("verify", str(made / "e"), *arguments, "--max-tokens", "2")
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "error[R1" in ended.err or "error[L0" in ended.err or ended.err.startswith("Usage: ")
    assert "R106" not in ended.err, "of an option that nobody gave"


def test_a_prompt_that_leaves_room_for_one_token(run: Run, made: Path) -> None:
    ids = ",".join(["1"] * 255)
    for command in (("run",), ("verify",)):
        ended = run(*command, str(made / "e"), "--prompt-ids", ids, "--json")
        assert ended.code == 0, ended.err
        json.loads(ended.out)


def test_an_empty_prompt_is_one_where_the_template_says_something(run: Run, made: Path) -> None:
    told = json.loads(run("run", str(made / "e"), "--prompt", "", "--max-tokens", "2", "--json").out)
    assert told["prompt_tokens"] > 0


def test_same_seed_same_text_and_no_seed_another(run: Run, made: Path) -> None:
    options = ("run", str(made / "e"), "--prompt", "Ünïcödé 😀", "--max-tokens", "12", "--json", "--ignore-eos")
    ids = [json.loads(run(*options, *extra).out)["token_ids"] for extra in (("--seed", "3"), ("--seed", "3"), (), ())]
    assert ids[0] == ids[1]
    assert ids[2] != ids[3]


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "no tokenizer": lambda e: (e / "tokenizer.json").unlink(),
    "short graph": lambda e: os.truncate(e / "graph.onnx", 1000),
    "empty manifest": lambda e: (e / "config.json").write_bytes(b""),
    "manifest of the target": lambda e: shutil.copy(e.parent / "t" / "config.json", e),
    "graph of another engine": lambda e: shutil.copy(GOLDEN / "target" / "model.safetensors", e / "graph.onnx"),
    "flipped byte in the weights": lambda e: _flip(e / "weights.safetensors", 20_000),
    "flipped byte in the graph": lambda e: _flip(e / "graph.onnx", 500),
    "weights are a folder": lambda e: ((e / "weights.safetensors").unlink(), (e / "weights.safetensors").mkdir()),
    "weights are a link to something else": lambda e: (
        (e / "weights.safetensors").unlink(),
        (e / "weights.safetensors").symlink_to("/etc/passwd"),
    ),
}


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_engines(name: str, run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    shutil.copytree(made / "t", tmp_path / "t")
    DAMAGES[name](tmp_path / "e")
    for command in (("run", "e", "--prompt", "a"), ("inspect", "e"), ("verify", "e")):
        ended = run(*command)
        assert (ended.code, ended.out) == (2, "")
        assert "error[L0" in ended.err


@pytest.mark.parametrize("path", ["e/weights.safetensors", "e/config.json", "e"])
def test_engines_that_may_not_be_read(path: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / path).chmod(0)
    ended = spawn("run", "e", "--prompt", "a", before=AS_READER)
    (tmp_path / path).chmod(0o755)
    assert (ended.code, ended.out) == (2, "")
    assert "error[L008]" in ended.err or "not readable" in ended.err


def test_an_engine_may_be_moved_and_linked(run: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "old")
    (tmp_path / "link").symlink_to("old")
    assert run("run", "link", "--prompt", "a", "--max-tokens", "1").code == 0
    (tmp_path / "old").rename(tmp_path / "new")
    assert run("run", "new", "--prompt", "a", "--max-tokens", "1").code == 0
    assert "error[L007]" in run("run", "link", "--prompt", "a").err


@pytest.mark.parametrize("path", ["t/config.json", "t/model.safetensors", "t/tokenizer.json", "t", "."])
def test_what_may_not_be_read_or_written(path: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "t", tmp_path / "t")
    (tmp_path / path).chmod(0 if path != "." else 0o555)
    ended = spawn("build", "--target", "t", "--output", "e", *LIMITS, before=AS_READER)
    (tmp_path / path).chmod(0o755)
    assert ended.code == 2
    assert "ermission denied" in ended.err or "not readable" in ended.err
    assert left_in(tmp_path) == ["t"]


def test_replacing_an_engine_that_may_not_be_moved(spawn: Run, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    (tmp_path / "e").chmod(0o555)  # renaming a folder writes its own ".."
    ended = spawn("build", "--target", str(made / "t"), "--output", "e", "--force", *LIMITS, before=AS_READER)
    assert (ended.code, "error[B005]" in ended.err) == (2, True)
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)


COMMANDS = {
    "run": ("run", "{e}", "--prompt", "a", "--max-tokens", "3"),
    "run json": ("run", "{e}", "--prompt", "a", "--max-tokens", "3", "--json"),
    "inspect": ("inspect", "{e}"),
    "inspect json": ("inspect", "{e}", "--json"),
    "doctor": ("doctor",),
    "doctor json": ("doctor", "--json"),
    "verify": ("verify", "{e}", "--prompt-ids", "5", "--max-tokens", "2"),
    "verify json": ("verify", "{e}", "--prompt-ids", "5", "--max-tokens", "2", "--json"),
    "build json": ("build", "--target", "{t}", "--output", "new", "--json", *LIMITS),
    "help": ("--help",),
}


def arguments_of(name: str, made: Path) -> list[str]:
    return [part.format(e=made / "e", t=made / "t") for part in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_output_that_cannot_be_written(name: str, spawn: Run, made: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = spawn(*arguments_of(name, made), stdout=full)
    assert ended.code in (1, 2)
    assert "No space left" in ended.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("name", ["run", "inspect", "doctor json", "build json"])
def test_closed_streams(name: str, closed: str, spawn: Run, made: Path) -> None:
    ended = spawn(*arguments_of(name, made), before=("bash", "-c", f'"$@" {closed}', "bash"))
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_leaves(name: str, spawn: Run, made: Path) -> None:
    script = 'set -o pipefail; "$@" | true; exit "${PIPESTATUS[0]}"'
    ended = spawn(*arguments_of(name, made), before=("bash", "-c", script, "bash"))
    assert ended.code in (0, 1)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.endswith("json")])
def test_json_is_json_also_for_odd_terminals(name: str, spawn: Run, made: Path, tmp_path: Path) -> None:
    for number, env in enumerate(
        ({"COLUMNS": "1"}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"FORCE_COLOR": "1", "TERM": "dumb"})
    ):
        arguments = [part if part != "new" else f"new{number}" for part in arguments_of(name, made)]
        ended = spawn(*arguments, env=env)
        assert ended.code == 0, ended.err
        json.loads(ended.out)


@pytest.mark.parametrize("name", ["run", "inspect", "doctor"])
def test_odd_terminals(name: str, spawn: Run, made: Path) -> None:
    for env in ({"COLUMNS": "40", "NO_COLOR": "1"}, {"COLUMNS": "0"}, {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}):
        ended = spawn(*arguments_of(name, made), env=env)
        assert ended.code == 0, ended.err
        assert "\x1b" not in ended.out


def start_build(made: Path, folder: Path, *extra: str, pause: bool = False) -> subprocess.Popen[str]:
    """A build, which with `pause` says "writing" and waits before it writes weights."""
    script = (
        "import sys, hspec_trt.pipeline as p\n"
        "write = p.write_weights\n"
        "def waiting(*a, **k):\n"
        "    print('writing', flush=True); sys.stdin.readline(); write(*a, **k)\n"
        f"p.write_weights = waiting if {pause} else write\n"
        "from hspec_trt.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    arguments = ["build", "--target", str(made / "t"), "--output", "e", *LIMITS, *extra]
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if pause:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
    return child


def test_two_builds_to_one_output(made: Path, tmp_path: Path) -> None:
    slow, fast = start_build(made, tmp_path, pause=True), start_build(made, tmp_path)
    _, err = fast.communicate(timeout=60)
    assert fast.returncode == 0, err
    _, err = slow.communicate("go\n", timeout=60)
    assert slow.returncode == 2
    assert "error[B001]" in err
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)


def test_two_replacements_of_one_engine(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "e", tmp_path / "e")
    children = [start_build(made, tmp_path, "--force", pause=True) for _ in range(3)]
    assert all(child.poll() is None for child in children)
    for child in children:
        _, err = child.communicate("go\n", timeout=60)
        assert child.returncode == 0, err
    assert left_in(tmp_path) == ["e"]
    open_engine(tmp_path / "e", whole=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_polite_signals_leave_nothing(number: signal.Signals, made: Path, tmp_path: Path) -> None:
    child = start_build(made, tmp_path, pause=True)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
    assert left_in(tmp_path) == []


def test_what_a_killed_build_left_goes_with_the_next(made: Path, tmp_path: Path) -> None:
    """Case G1: killed midway there is no engine, and no rubbish once the next build has come."""
    killed, alive = (start_build(made, tmp_path, pause=True) for _ in range(2))
    killed.kill()
    killed.communicate(timeout=60)
    assert len(left_in(tmp_path)) == 2
    assert "e" not in left_in(tmp_path)
    third = start_build(made, tmp_path)
    _, err = third.communicate(timeout=60)
    assert third.returncode == 0, err
    assert len(left_in(tmp_path)) == 2, "what a living build writes must stay"
    alive.send_signal(signal.SIGTERM)
    alive.communicate(timeout=60)
    assert left_in(tmp_path) == ["e"]


def test_an_interrupted_answer(made: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hspec_trt.cli", "run", str(made / "e"), "--prompt-ids", "1", "--ignore-eos"]
    script = (
        "import sys, time\n"
        "from hspec_trt.cli import main, run\n"
        "import hspec_trt.runtime.ort_session as o\n"
        "step = o.OrtSession.step\n"
        "def slow(*a):\n"
        "    print('step', flush=True); time.sleep(0.05); return step(*a)\n"
        "o.OrtSession.step = slow\n"
        "main(sys.argv[1:])\n"
    )
    command[1:3] = ["-c", script]
    child = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "step\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode in (130, -signal.SIGINT)
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
