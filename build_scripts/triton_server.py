# SPDX-License-Identifier: Apache-2.0
"""The real Triton Inference Server from PyPI, on loopback, with or without a GPU.

``install`` makes a virtual environment with the server and this package, once; ``start`` starts it on a model
repository, waits until it is ready and prints the process id; ``stop`` ends it. Only the standard library is used, so
that any Python can run it. It knows nothing of what the repository holds.

Why each step is there:

* The server comes with the wheel ``nvidia-pytriton``; its other requirements are not needed, hence ``--no-deps``.
* The server's Python stub of that release works with NumPy 1 only, which exists up to Python 3.12.
* The stub must lie (as a link, so that it finds its libraries) in the backend directory, where the wheel has none.
* ``PATH`` starts with the environment and ``LD_LIBRARY_PATH`` names the base Python's libraries, because the stub
  embeds that Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_VENV = ROOT / ".cache" / "triton_server"
SERVER = "nvidia-pytriton==0.7.0"
NUMPY = "numpy<2"
RECIPE = 1
"""Raise it when `install` does something else with the same packages."""
PYTHONS = ((3, 11), (3, 12), (3, 10))
"""Python versions that have both a stub in the wheel and a NumPy 1 wheel, the preferred first."""
SHM_FOLDER = Path("/dev/shm")
EXIT_SECONDS = 4
"""What the server grants open requests when it is asked to stop; HTTP connections may use it up."""
STOP_SECONDS = EXIT_SECONDS + 2.0
"""After that it is killed: with gRPC streams open, release 2.51 gives up after its exit timeout and then hangs."""


def install(venv: Path) -> Path:
    """Make the environment, or leave it where it is up to date; returns its folder."""
    recipe = hashlib.sha256(repr((RECIPE, SERVER, NUMPY, _requirements())).encode()).hexdigest()
    stamp = venv / "recipe.sha256"
    with _locked(venv.with_suffix(".lock")):
        if not (stamp.is_file() and stamp.read_text() == recipe):
            python = _find_python()
            print(f"installing {SERVER} and hspec_trt[cpu,guided] into {venv} ({python})", file=sys.stderr)
            _run(python, "-m", "venv", "--clear", str(venv))
            pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run(*pip, NUMPY, "-e", f"{ROOT}[cpu,guided]")
            _run(*pip, "--no-deps", SERVER)
            _link_backend(venv)
            _check_libpython(venv)
            stamp.write_text(recipe)
    return venv


def start(
    venv: Path, repository: Path, log: Path, ports: tuple[int, int, int], options: list[str]
) -> dict[str, object]:
    """Start the server and wait until it is ready; returns pid, ports and the prefix of its shared memory."""
    http, grpc, metrics = ports
    prefix = f"hspec_trt_{uuid.uuid4().hex[:8]}_"
    command = [
        str(_server_folder(venv) / "bin" / "tritonserver"),
        f"--model-repository={repository.resolve()}",
        f"--backend-directory={venv / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *("--http-address=127.0.0.1", f"--http-port={http}"),
        *("--grpc-address=127.0.0.1", f"--grpc-port={grpc}"),
        *("--metrics-address=127.0.0.1", f"--metrics-port={metrics}"),
        *("--allow-gpu-metrics=false", f"--exit-timeout-secs={EXIT_SECONDS}"),
        # Explicit control lets a model whose engine died take itself out of service, and be loaded again.
        "--model-control-mode=explicit",
        *([] if any(option.startswith("--load-model") for option in options) else ["--load-model=*"]),
        *options,
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=_environment(venv),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    record: dict[str, object] = {"pid": process.pid, "http": http, "grpc": grpc, "metrics": metrics, "shm": prefix}
    _record_file(process.pid).write_text(json.dumps(record))
    try:
        _wait_ready(process, http, log)
    except BaseException:
        stop(process.pid)
        raise
    return record


def stop(pid: int) -> float:
    """End a server: politely, then by force; clears its shared memory. Returns the seconds that it took.

    A process that `start` did not start, or that was stopped before, is left alone.
    """
    began = time.monotonic()
    record = _record_file(pid)
    if not record.is_file():
        return 0.0
    for name, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, name)
        except ProcessLookupError:
            break
        if _gone(pid, patience):
            break
    # Models of a server that was killed may survive it; they share its process group.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    prefix = str(json.loads(record.read_text())["shm"])
    for leftover in SHM_FOLDER.glob(f"{prefix}*"):
        leftover.unlink(missing_ok=True)
    record.unlink()
    return time.monotonic() - began


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _requirements() -> str:
    """The part of pyproject.toml that decides what is installed (read as text: Python 3.10 has no TOML reader)."""
    text = (ROOT / "pyproject.toml").read_text()
    return "".join(re.findall(r"^dependencies = \[.*?^\]|^(?:cpu|guided) = .*?$", text, re.MULTILINE | re.DOTALL))


def _find_python() -> str:
    """A base Python that the stub can embed: this one if it fits, else the first on PATH that does."""
    for version in PYTHONS:
        if sys.version_info[:2] == version:
            return str(Path(sysconfig.get_config_var("BINDIR")) / f"python{version[0]}.{version[1]}")
    for major, minor in PYTHONS:
        found = shutil.which(f"python{major}.{minor}")
        if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    wanted = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    sys.exit(f"error: the server's Python stub needs Python {wanted}; none is on PATH. Install one of them")


def _link_backend(venv: Path) -> None:
    server, version = _server_folder(venv), _python_version(venv)
    folder = venv / "backends" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        server / "python_backend_stubs" / version / "triton_python_backend_stub",
    ]
    for source in sources:
        link = folder / source.name
        link.unlink(missing_ok=True)
        link.symlink_to(source)


def _check_libpython(venv: Path) -> None:
    """Without it the stub does not start, and the server waits for it for ever."""
    library = f"libpython{_python_version(venv)}.so.1.0"
    command = [str(venv / "bin" / "python"), "-c", f"import ctypes; ctypes.CDLL({library!r})"]
    if subprocess.run(command, check=False, env=_environment(venv), capture_output=True).returncode:
        sys.exit(
            f"error: {library} is not found. Install the package that has it (Debian: {library.partition('.so')[0]})"
        )


def _environment(venv: Path) -> dict[str, str]:
    libraries = [_probe(venv, "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))")]
    libraries += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    path = f"{venv / 'bin'}:{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": ":".join(libraries)}


def _server_folder(venv: Path) -> Path:
    return venv / "lib" / f"python{_python_version(venv)}" / "site-packages" / "pytriton" / "tritonserver"


def _python_version(venv: Path) -> str:
    return _probe(venv, "import sys; print('%d.%d' % sys.version_info[:2])")


def _probe(venv: Path, code: str) -> str:
    python = str(venv / "bin" / "python")
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _wait_ready(process: subprocess.Popen[bytes], http: int, log: Path, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").splitlines()
            shown = [line for line in lines if line.startswith(("E", "error"))] or lines[-20:]
            sys.exit("error: the server did not start\n" + "\n".join(shown))
        try:
            with closing(urllib.request.urlopen(f"http://127.0.0.1:{http}/v2/health/ready", timeout=5)):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"error: the server was not ready within {seconds:.0f} s; see {log}")


def _gone(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # A child of ours stays a zombie until it is waited for; anybody else's just goes.
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def _record_file(pid: int) -> Path:
    folder = ROOT / ".cache" / "triton_server_runs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{pid}.json"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed with exit code {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--venv", type=Path, default=DEFAULT_VENV, help="environment of the server (default: %(default)s)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="make the environment; nothing happens where it is up to date")
    starting = commands.add_parser("start", help="start and print the process id; options of tritonserver follow --")
    starting.add_argument("repository", type=Path, help="model repository, as hspec-trt export-triton writes it")
    starting.add_argument("--http-port", type=int, default=8000)
    starting.add_argument("--grpc-port", type=int, default=8001)
    starting.add_argument("--metrics-port", type=int, default=8002)
    starting.add_argument("--free-ports", action="store_true", help="take three free ports instead")
    starting.add_argument("--log", type=Path, default=Path("triton_server.log"))
    starting.add_argument("--json", action="store_true", help="print process id and ports as JSON")
    stopping = commands.add_parser("stop", help="end a server that start started")
    stopping.add_argument("pid", type=int)
    given, server_options = sys.argv[1:], list[str]()
    if "--" in given:
        split = given.index("--")
        given, server_options = given[:split], given[split + 1 :]
    arguments = parser.parse_args(given)
    if arguments.command == "stop":
        print(f"stopped in {stop(arguments.pid):.1f} s")
        return
    venv = install(arguments.venv.resolve())
    if arguments.command == "install":
        print(venv)
        return
    ports = (arguments.http_port, arguments.grpc_port, arguments.metrics_port)
    if arguments.free_ports:
        http, grpc, metrics = free_ports(3)
        ports = (http, grpc, metrics)
    record = start(venv, arguments.repository, arguments.log, ports, server_options)
    print(json.dumps(record) if arguments.json else record["pid"])


if __name__ == "__main__":
    main()
