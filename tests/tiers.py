"""What `make test` and `make check` run: the one list.

    python -m tests.tiers test      linters, types, import contracts, and the tests that need nothing but Python
    python -m tests.tiers check     what is missing here, by name; then all the rest, with all examples of Hypothesis
    python -m tests.tiers closing   what both found, in one line (.ci/run ends with it)

`make check` leaves out what `make test` has run where that passed on the very same files with the same Python.
A test belongs to `make test` by its folder, unless it asks for a program (mark `needs`) or for something built (a
fixture of tests/peers/ahead.py), or stands in SLOW.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import peers, programs
from tests.examples import SHARE
from tests.peers import go
from tests.peers.ahead import KNOWN, TIERS, Ahead, fixtures

ROOT = Path(__file__).parents[1]
RUN = ROOT / "run" / "tiers"
"""What a run found: an XML file of each target."""
STAMP = Path(sys.prefix) / ".tested"
"""The digest of the files that `make test` passed with, in the virtual environment that it used."""
TEST, REST, ALL = NAMES = ("test", "rest", "all")
FOLDERS = (
    "tests/flow", "tests/referee", "tests/docs", "tests/unit", "tests/gate", "tests/property", "tests/cli",
    "tests/replay", "tests/contract", "tests/podresources", "tests/peers",
)  # fmt: skip
"""Of `make test`; those with the longest files first."""
SLOW = ("tests/docs/test_commands.py", "tests/docs/test_newcomer.py", "tests/replay/test_roundtrip.py")
"""Files and tests of FOLDERS that take long for what they show."""
EXAMPLES = "0.2"
"""The share of Hypothesis' examples in `make test`."""
MARKS = ("needs", "go", "cluster", "root_cgroup", "lab")
"""A test with one of them is none of `make test`."""
ELSEWHERE = ("releasing", "arm_guest")
"""What is built for `make release-test` and `make arm` alone."""
MOST = 8
"""Processes: each takes a quarter of a gigabyte."""
LINTS = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("lint-imports", "--no-cache"))
ADDS = (
    "`make check` adds the tests against real programs (kube-apiserver, a container runtime's NRI, Helm, the image, "
    "a browser, this machine's cgroups), kills of the agent, pairs of faults, and five times as many random examples."
)
LEFT_OUT = {".git", ".venv", "run", "dist", "__pycache__"}
"""Folders that are no source."""

# ---- hooks of tests/conftest.py


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a tier's tests."""
    tier = config.getoption("tier")
    kept = [each for each in items if tier == ALL or (_quick(each) if tier == TEST else _rest(each))]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[each for each in items if each not in set(kept)])
        items[:] = kept


def _quick(item: pytest.Item) -> bool:
    """Whether `make test` runs it."""
    return (
        item.nodeid.startswith(tuple(f"{each}/" for each in FOLDERS))
        and not item.nodeid.startswith(SLOW)
        and not TIERS.keys() & fixtures(item)
        and not any(item.get_closest_marker(each) for each in MARKS)
    )


def _rest(item: pytest.Item) -> bool:
    """Whether `make check` runs it after `make test`: random examples differ each time."""
    return not _quick(item) or bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


# ---- commands


def test() -> int:
    """`make test`: 0 when all passed."""
    started = time.monotonic()
    digest = sources()
    STAMP.unlink(missing_ok=True)
    codes = [_run(*each) for each in LINTS]
    with _beside("mypy") as types:
        codes.append(_pytest(TEST, *FOLDERS, **{SHARE: EXAMPLES}))
    codes += types
    if not any(codes):
        STAMP.write_text(digest, "utf-8")
    print(f"make test took {time.monotonic() - started:.0f} s. {ADDS}", flush=True)
    return max(codes)


def check() -> int:
    """`make check`: 0 when all passed."""
    started = time.monotonic()
    print(*announced(), sep="\n", flush=True)
    if os.environ.get("CI") and programs.missing():
        return 1
    after = STAMP.is_file() and STAMP.read_text("utf-8") == sources()
    print(
        "`make test` passed with these files: what it ran is not run again." if after
        else "`make test` has not passed with these files: all of it is run, too.", flush=True,
    )  # fmt: skip
    codes = [] if after else [*(_run(*each) for each in LINTS), _run("mypy")]
    go.offer()
    print("== the programs that tests talk to, built or found in the cache", flush=True)
    ahead = Ahead(lambda text: print(text, flush=True))
    for name in TIERS:
        if name not in ELSEWHERE:
            ahead.need(name)
    codes.append(_pytest(REST if after else ALL, **{KNOWN: json.dumps(ahead.missing)}))
    print(f"make check took {time.monotonic() - started:.0f} s. `make lab` adds real kubelets in QEMU guests.")
    return max(codes)


def announced() -> list[str]:
    """What is missing here, by name, and what brings it: told before anything begins."""
    lines = programs.told(programs.missing())
    if os.geteuid():
        lines.append("This is not root: the tests of the image and of this machine's own cgroups are skipped.")
    if not lines:
        lines.append("`make check`: nothing is missing here.")
    if peers.not_kept(peers.kube):
        lines.append(
            "Kubernetes' components, Helm and the other programs of Go are built first, once: about eleven minutes. "
            f"They are kept in {peers.CACHE.parent}."
        )
    return lines


def closing() -> int:
    """The sum of what the targets found, as the last line."""
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for file in sorted(RUN.glob("*.xml")):
        for word, number in counted(file).items():
            total[word] += number
    print(", ".join(f"{number} {word}" for word, number in total.items()), flush=True)
    return 0


def counted(file: Path) -> dict[str, int]:
    """How many tests of a JUnit file passed, failed and were skipped."""
    number = {
        key: sum(int(each.get(key, 0)) for each in ET.parse(file).getroot().iter("testsuite"))  # noqa: S314 - ours
        for key in ("tests", "failures", "errors", "skipped")
    }  # fmt: skip
    failed = number["failures"] + number["errors"]
    return {"passed": number["tests"] - failed - number["skipped"], "failed": failed, "skipped": number["skipped"]}


def sources() -> str:
    """A digest of all files that a test may read, and of the Python that runs it."""
    found = hashlib.sha256(sys.version.encode())
    for path in _files(ROOT):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in LEFT_OUT and not path.name.endswith("_cache") and path.name != ".hypothesis":
                yield from _files(path)
        elif path.is_file():
            yield path


def _pytest(tier: str, *paths: str, **more: str) -> int:
    """Run a tier's tests by as many processes as this one may have CPUs; those of a file follow each other in one."""
    RUN.mkdir(parents=True, exist_ok=True)
    number = min(len(os.sched_getaffinity(0)), MOST)
    return _run(
        "python", "-m", "pytest", "-q", f"--tier={tier}", f"-n{number}", "--dist=loadfile", "--no-loadscope-reorder",
        f"--junitxml={RUN / ('test' if tier == TEST else 'check')}.xml", "--durations=10", *paths, **more,
    )  # fmt: skip


@contextlib.contextmanager
def _beside(program: str) -> Iterator[list[int]]:
    """Run a program beside something else; what it said is printed at the end, when the list has its exit code."""
    codes: list[int] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        with subprocess.Popen([BIN / program], cwd=ROOT, stdout=file, stderr=file) as process:
            yield codes
        codes.append(process.returncode)
        file.seek(0)
        print(f"== {program}\n{file.read()}", end="", flush=True)


def _run(program: str, *arguments: str, **more: str) -> int:
    """Run a program of the virtual environment; its exit code."""
    print(f"== {program} {' '.join(arguments)}", flush=True)
    return subprocess.run([BIN / program, *arguments], cwd=ROOT, check=False, env={**os.environ, **more}).returncode


BIN = Path(sys.executable).parent
COMMANDS = {"test": test, "check": check, "closing": closing}


def main(arguments: list[str]) -> int:
    """Run one of COMMANDS."""
    command = COMMANDS.get(" ".join(arguments))
    if command is None:
        print(__doc__, file=sys.stderr)
        return 2
    return command()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
