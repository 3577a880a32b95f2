"""`python -m tests.lab`: build, start, test, play with and end the lab."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path

from tests import peers
from tests.image import ImageMissingError
from tests.lab import cluster, needs, report
from tests.lab.cluster import Lab
from tests.lab.needs import LabError
from tests.lab.places import ROOT, RUN, logs

EXAMPLES = """
examples:
  python -m tests.lab needs              what is missing on this machine
  python -m tests.lab run                build, start, run the tests, write run/lab/report.md, end
  python -m tests.lab run --keep -k cpu  the same for some tests, and leave the lab running
  python -m tests.lab up                 build and start; prints how to use it with kubectl
  python -m tests.lab shell numalign     a root shell in a guest (leave it with exit)
  python -m tests.lab down               end everything; only logs stay

exit codes: 0 done; 1 a test failed; 2 wrong arguments; 3 something is missing or does not start
"""


class Progress:
    """Lines with the time since the start, on the terminal and in run/lab/logs/progress.log."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        """One line."""
        line = f"[{time.monotonic() - self._began:5.0f} s] {text}"
        print(line, flush=True)
        with (logs() / "progress.log").open("a") as file:
            file.write(line + "\n")


def main() -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab", description="A cluster of emulated NUMA machines with a real kubelet.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("needs", help="say what is missing here")
    commands.add_parser("up", help="build what is not kept, start what does not run")
    running = commands.add_parser("run", help="up, the tests, a report, down")
    running.add_argument("--keep", action="store_true", help="leave the lab running at the end")
    running.add_argument("pytest", nargs="*", help="arguments of pytest after --, such as a file or -k WORD")
    shell = commands.add_parser("shell", help="a root shell in a guest")
    shell.add_argument("node", nargs="?", default=cluster.NUMALIGN)
    commands.add_parser("down", help="end everything")
    asked, rest = parser.parse_known_args()
    if rest and asked.command != "run":
        parser.error(f"unknown arguments: {' '.join(rest)}")
    actions: dict[str, Callable[[], int]] = {
        "needs": _needs, "up": lambda: _up(Progress()), "down": _down,
        "run": lambda: _run(Progress(), [*asked.pytest, *rest], keep=asked.keep),
        "shell": lambda: _shell(asked.node),
    }  # fmt: skip
    try:
        return actions[asked.command]()
    except (LabError, peers.PeerMissingError, ImageMissingError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return LAB_FAULT


FAILED, LAB_FAULT = 1, 3
"""Exit codes: an assertion failed; the lab itself did not do what the tests stand on."""
FIRST_TRY = 0.8
"""Share of a run's minutes for the first try of everything: what fails late has to be tried again, too."""
WORDS = 1000
"""Characters of a failure that are told again at the end, where a reader of a long log looks first."""


def _needs() -> int:
    needs.check()
    print("nothing is missing")
    return 0


def _up(progress: Progress) -> int:
    needs.check()
    progress(f"logs are in {logs()}")
    times = cluster.built(progress)
    lab = Lab.up(progress=progress)
    cluster.keep_times(times | lab.times)
    print(f"kubectl: export KUBECONFIG={lab.plane.kubeconfig}; {peers.kube()} kubectl get nodes")
    print(f"nodes: {', '.join(lab.nodes)}; make lab-shell NODE={cluster.NUMALIGN}, make lab-down")
    return 0


def _run(progress: Progress, arguments: list[str], *, keep: bool) -> int:
    """Up, pytest, report, down; whatever happens, nothing is left running unless that was asked."""
    began = time.monotonic()
    for old in ("figures.json", "times.json", *(each.name for each in report.TRIES)):
        (RUN / old).unlink(missing_ok=True)
    try:
        code = _up(progress)
        progress("tests")
        tested = time.monotonic()
        chosen = [each for each in arguments if each != "--"]
        chosen = chosen if any(each.startswith("tests/") for each in chosen) else ["tests/lab", *chosen]
        first, *more = report.TRIES
        ended = _pytest(first, chosen, 0.0, share=FIRST_TRY)
        for file in more:  # an emulated machine is slow at times; the report tells of all of them
            if ended == FAILED and report.broken():
                progress("what failed is tried once more")
                _pytest(file, ["--last-failed", *chosen], time.monotonic() - tested)
        broken = report.broken()
        if broken or ended not in (0, FAILED):
            code = LAB_FAULT if report.only_lab_faults(broken) else FAILED
        cluster.keep_times({"tests": time.monotonic() - tested})
        words = f"{len(broken)} failed at every try" if broken else f"none failed at every try (pytest: {ended})"
        progress(f"tests ended, {words}; report: {report.write(Lab.find(), time.monotonic() - began)}")
        for name, texts in broken.items():
            print(f"\nFAILED at every try: {name}", *(each[:WORDS] for each in texts), sep="\n", flush=True)
        return code
    finally:
        if not keep:
            _down()
            progress("everything ended")


def _pytest(file: Path, arguments: list[str], spent: float, share: float = 1.0) -> int:
    """Run tests, each of them told in a file; the exit code of pytest.

    Args:
        file: gets what came of them.
        arguments: of pytest.
        spent: seconds of their limit (NUMALIGN_LAB_MINUTES) that are gone.
        share: of the limit that they may use.
    """
    minutes = os.environ.get("NUMALIGN_LAB_MINUTES")
    limit = {"NUMALIGN_LAB_MINUTES": f"{float(minutes) * share:.1f}"} if minutes else {}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-v", "--durations=15", f"--junitxml={file}", *arguments],
        cwd=ROOT, check=False,
        env={**os.environ, **limit, "NUMALIGN_LAB_TESTS": "1", "NUMALIGN_LAB_SPENT": f"{spent:.0f}"},
    ).returncode  # fmt: skip


def _down() -> int:
    lab = Lab.find()
    if lab:
        lab.down()
    return 0


def _shell(name: str) -> int:
    """This terminal becomes the guest's."""
    lab = Lab.find()
    node = lab.nodes.get(name) if lab else None
    if node is None or not node.guest.running:
        there = ", ".join(lab.nodes) if lab else "none; start it with make lab-up"
        raise LabError(f"no node called {name} runs; there are: {there}")
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal) if sys.stdin.isatty() else None
    with node.guest.connect({"do": "shell"}, 30) as link, contextlib.suppress(OSError):  # it went away
        link.settimeout(None)
        try:
            if before:
                tty.setraw(terminal)
            while True:
                ready, _, _ = select.select([terminal, link], [], [])
                if link in ready:
                    data = link.recv(65536)
                    if not data:
                        break
                    os.write(sys.stdout.fileno(), data)
                if terminal in ready:
                    data = os.read(terminal, 65536)
                    link.sendall(data or b"exit\n")
        finally:
            if before:
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
