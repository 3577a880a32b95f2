"""What numalign says and answers where its output cannot be written, and where a command is mistyped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MACHINE = "synthetic:2 sockets x 4 cores, 8G per node"
COMMANDS = {
    "version": ["--version"],
    "help": ["run", "--help"],
    "text": ["topology", "--root", MACHINE],
    "json": ["topology", "--root", MACHINE, "-o", "json"],
    "table": ["simulate", "--pods", "{pods}", "--root", MACHINE],
    "run": ["run", "--once", "--pods", "{pods}", "--root", MACHINE, "--state-dir", "{state}"],
}
POD = """{kind: Pod, metadata: {name: db}, spec: {containers: [
    {name: app, resources: {limits: {cpu: "2", memory: 64Mi}}}]}}"""


@pytest.fixture
def called(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """The command line of the test's parameter, on a folder with one pod."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "db.yaml").write_text(POD)
    places = {"pods": str(tmp_path / "pods"), "state": str(tmp_path / "state")}
    return [sys.executable, "-m", "agent", *(each.format(**places) for each in COMMANDS[request.param])]


every = pytest.mark.parametrize("called", COMMANDS, indirect=True)


@every
def test_a_full_disk_is_one_sentence_and_no_answer(called: list[str]) -> None:
    """Exit code 3, which is a fault of this machine, and not 1, which is the answer no."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "numalign: standard output: cannot be written: No space left on device\n"
    assert done.returncode == 3


@every
def test_a_closed_output_is_one_sentence(called: list[str]) -> None:
    """The same for a standard output that is closed."""
    line = ["sh", "-c", '"$@" >&-', "sh", *called]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stderr == "numalign: standard output: is closed; redirect it to a file, or to /dev/null\n"
    assert (done.returncode, done.stdout) == (3, "")


@every
def test_a_reader_that_went_away_is_no_fault(called: list[str]) -> None:
    """A pipe that nobody reads ends a command silently with 0, so that `| head` holds under `set -o pipefail`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(called, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_a_file_option_is_no_wrong_input() -> None:
    """--file on a full disk is exit code 3; a folder that is not there is wrong input, 2."""
    codes = {}
    for file in ("/dev/full", "/nowhere/x"):
        line = [sys.executable, "-m", "agent", "topology", "--root", MACHINE, "--file", file]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert f"{file}" in done.stderr
        assert "Traceback" not in done.stderr
        codes[file] = done.returncode
    assert codes == {"/dev/full": 3, "/nowhere/x": 2}


def test_mistyped_commands_and_help() -> None:
    """A near miss names the command; `help` and `help COMMAND` are --help."""

    def said(*words: str) -> tuple[int, str]:
        line = [sys.executable, "-m", "agent", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, text = said("simulat")
    assert code == 2
    assert "Did you mean simulate?" in text
    assert said("help") == said("--help")
    assert said("help", "verify") == said("verify", "--help")
    assert said("help")[0] == 0


def test_ctrl_c_while_modules_are_imported_is_silent(tmp_path: Path) -> None:
    """Whoever mistyped a command and stops it at once sees a prompt and no traceback of an import."""
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), 2)\ntime.sleep(60)\n")
    where = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # not so behind a shell's &
    called = [sys.executable, "-c", f"{heard}; from agent.__main__ import main; main()"]
    done = subprocess.run(called, check=False, capture_output=True, env={**os.environ, "PYTHONPATH": where})
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
