"""`python -m tests.lab`: build, start, test, play with and end the lab."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence

from tests import peers
from tests.lab import cells, cluster, needs, outcomes, places, report, sampling, slices
from tests.lab.cluster import Lab
from tests.lab.needs import LabError, PromiseError
from tests.lab.places import ROOT, RUN, logs
from tests.peers import go
from tools.image import ImageMissingError

EXAMPLES = """
examples:
  python -m tests.lab needs              what is missing on this machine
  python -m tests.lab run                build, start, run the tests, write run/lab/report.md, end
  python -m tests.lab run --keep -k cpu  the same for some tests, and leave the lab running
  python -m tests.lab ci                 what CI runs: the core, and a slice by the hour
  python -m tests.lab cell 1.34-v1-cgroupfs  the lab with such kubelets; what came of it goes to the docs
  python -m tests.lab cell all           every such cell that has not passed at this commit
  python -m tests.lab all                all of the lab, for ten hours; goes on where it was ended
  python -m tests.lab up                 build and start; prints how to use it with kubectl
  python -m tests.lab shell numalign     a root shell in a guest (leave it with exit)
  python -m tests.lab down               end everything; only logs stay

exit codes: 0 done, every test on the list passed; 1 one did not, or numalign does not start; 2 wrong arguments;
3 something is missing, or the lab did not come up at the second try either: nothing was tested
"""


class Progress:
    """Lines with the time since the start, on the terminal and in run/lab/logs/progress.log."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
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
    commands.add_parser("kept", help="whether this machine keeps what takes long to build, from an earlier run")
    commands.add_parser("up", help="build what is not kept, start what does not run")
    running = commands.add_parser("run", help="up, the tests, a report, down")
    running.add_argument("--keep", action="store_true", help="leave the lab running at the end")
    running.add_argument("pytest", nargs="*", help="arguments of pytest after --, such as a file or -k WORD")
    commands.add_parser("ci", help="what CI runs")
    whole = commands.add_parser("all", help="everything that has not passed at this commit")
    whole.add_argument("part", nargs="*", metavar="PART", help=f"run these: {', '.join(PARTS)}")
    cell = commands.add_parser("cell", help="a lab with other kubelets or cgroups: see tests/lab/cells.py")
    cell.add_argument("name", choices=[*cells.BY_NAME, ALL])
    shell = commands.add_parser("shell", help="a root shell in a guest")
    shell.add_argument("node", nargs="?", default=cluster.NUMALIGN)
    commands.add_parser("down", help="end everything")
    asked, rest = parser.parse_known_args()
    if rest and asked.command != "run":
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if asked.command == "all" and (unknown := {*asked.part} - PARTS.keys()):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    actions: dict[str, Callable[[], int]] = {
        "needs": _needs, "kept": _kept, "up": lambda: _up(Progress()), "down": _down,
        "run": lambda: _alone(lambda: _run(Progress(), lambda: _asked([*asked.pytest, *rest]), keep=asked.keep)),
        "ci": lambda: _alone(lambda: _ci(Progress())),
        "all": lambda: _all(asked.part),
        "cell": lambda: (
            _all_cells() if asked.name == ALL else _alone(lambda: _cell(Progress(), cells.BY_NAME[asked.name]))
        ),
        "shell": lambda: _shell(asked.node),
    }  # fmt: skip
    go.offer()
    try:
        return actions[asked.command]()
    except PromiseError as error:
        print(f"RED: numalign: {error}", file=sys.stderr)
        return FAILED
    except (LabError, peers.PeerMissingError, ImageMissingError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return LAB_FAULT


ALL = "all"
"""Instead of a cell's name."""
LONG = {"NUMALIGN_LAB_LONG": "1", "NUMALIGN_LAB_REFEREE": "all"}
PARTS = {
    **{file: ("tests.lab", "run", "--keep", file) for file in slices.FILES},
    "cells": ("tests.lab", "cell", ALL),
}  # fmt: skip
"""Of `all`: name -> module and arguments. A lab that runs is used again: only the first part waits for the boot."""
FAILED, LAB_FAULT = 1, 3
"""Exit codes. Both are red; the second one says that no test began."""


def _alone(command: Callable[[], int]) -> int:
    """Run a command that ends what it finds, unless another one is at it."""
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another command runs tests in {RUN}: let it end, or name another place by NUMALIGN_LAB"
            ) from None
        return command()


def _needs() -> int:
    needs.check()
    print("nothing is missing")
    return 0


def _kept() -> int:
    needs.check()
    if why := cluster.not_kept():
        raise LabError(why)
    print("all that takes long to build is kept")
    return 0


def _up(progress: Progress) -> int:
    needs.check()
    progress(f"logs are in {logs()}")
    cluster.built(progress)
    lab = Lab.up(progress=progress)
    print(f"kubectl: export KUBECONFIG={lab.plane.kubeconfig}; {peers.kube()} kubectl get nodes")
    print(f"nodes: {', '.join(lab.nodes)}; make lab-shell NODE={cluster.NUMALIGN}, make lab-down")
    return 0


def _fresh(progress: Progress) -> None:
    """Up. A lab that does not come up is started once more from the beginning; what numalign breaks is not."""
    needs.check()
    try:
        _up(progress)
    except LabError as error:
        progress(f"the lab did not come up ({error}): once more, from the beginning")
        _down()
        _up(progress)


def _ci(progress: Progress) -> int:
    """What a run of CI takes: the core, and a slice."""
    names, tests = slices.of_this_run(os.environ.get(slices.CHOICE, ""), time.time())
    progress(f"the core and the slice {names}")
    os.environ.setdefault("NUMALIGN_LAB_REFEREE", "1")
    return _run(progress, lambda: [*slices.CORE.tests, *tests], keep=False)


def _all(asked: Sequence[str]) -> int:
    """All of the lab, each file and each long run by a command of its own; what passed at this commit is left out.

    Args:
        asked: parts that are run even if they passed; none for those that are due.
    """
    kept, now, red = ROOT / "run" / "lab-all.json", places.commit(cells.KEPT), list[str]()
    passed = json.loads(kept.read_text()) if kept.exists() else {}
    chosen = asked or [name for name in PARTS if passed.get(name) != now]
    for number, name in enumerate(chosen, start=1):
        print(f"== part {number} of {len(chosen)}: {name}", flush=True)
        command = [sys.executable, "-m", *PARTS[name]]
        code = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, **LONG}).returncode
        passed[name] = "" if code else now
        kept.write_text(json.dumps(passed, indent=1) + "\n")
        red += [name] if code else []
    print(f"RED: {', '.join(red)}" if red else "all passed")
    return _down() or (FAILED if red else 0)


def _cell(progress: Progress, cell: cells.Cell) -> int:
    """A lab of one cell, from its start to its end; what came of it is written down, red or not."""
    os.environ[cluster.CELL] = cell.name
    os.environ.setdefault("NUMALIGN_LAB_REFEREE", "1")
    versions: dict[str, str] = {}

    def drawn() -> list[str]:
        versions.update(_versions(cell))
        return [*cell.tests]

    code = _run(progress, drawn, keep=False)
    cells.keep(cell.name, outcomes.read(), versions)
    return code


def _versions(cell: cells.Cell) -> dict[str, str]:
    """What runs in the lab of a cell, as it tells it; raises LabError where that is another kind of node."""
    lab = Lab.find()
    found = cells.versions(lab.nodes.values()) if lab else {}
    if wrong := cells.unlike(cell, found):
        raise LabError(f"this is no lab of the cell {cell.name}: {wrong}")
    return found


def _all_cells() -> int:
    """Every cell that has not passed at this commit, each by its own command; the worst exit code."""
    due = cells.due(cells.read(), places.commit(cells.KEPT))
    commands = ([sys.executable, "-m", "tests.lab", "cell", each.name] for each in due)
    codes = [subprocess.run(each, cwd=ROOT, check=False).returncode for each in commands]
    return max(codes, default=0)


def _asked(arguments: Sequence[str]) -> list[str]:
    """Arguments of pytest; all of the lab's tests where none is named."""
    chosen = [each for each in arguments if each != "--"]
    return chosen if any(_names_tests(each) for each in chosen) else ["tests/lab", *chosen]


def _names_tests(argument: str) -> bool:
    return not argument.startswith("-") and (ROOT / argument.partition("::")[0]).exists()


def _run(progress: Progress, drawn: Callable[[], list[str]], *, keep: bool) -> int:
    """Up, pytest once, report, down; whatever happens, nothing is left running unless that was asked."""
    began = time.monotonic()
    for old in (
        outcomes.LIST,
        outcomes.TOLD,
        sampling.FILE,
        RUN / "figures.json",
    ):
        old.unlink(missing_ok=True)
    try:
        _fresh(progress)
        return _tested(progress, drawn(), began)
    finally:
        if not keep:
            _down()
            progress("everything ended")


def _tested(progress: Progress, arguments: list[str], began: float) -> int:
    """The tests, once, and the report; the exit code."""
    progress("tests")
    try:
        ended = outcomes.run(*arguments)
    finally:
        progress(f"report: {report.write(Lab.find(), time.monotonic() - began)}")
    asked = [os.path.relpath(each, ROOT) for each in arguments if _names_tests(each)]
    found = outcomes.read()
    broken = [*outcomes.red(found, asked, ended)]
    for each in broken:
        print(f"\nRED: {each}", flush=True)
    progress(f"{len(broken)} red" if broken else "all passed")
    return FAILED if broken or ended else 0


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
