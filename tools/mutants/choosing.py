"""Which tests run a line: recorded once per file of tests, kept outside of the work tree, chosen by time."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutants.forks import Ended, Forks, Run
from tools.mutants.operators import Mutant
from tools.mutants.places import FAST, ROOT, SLOWEST, git
from tools.mutants.session import by_line

RECORDING, TOGETHER = 1200.0, 8
"""Seconds of CPU for so many files of tests."""
FIRST_FILES, FIRST_SECONDS, PER_FILE = 14, 3.0, 4


@dataclass(frozen=True)
class Choice:
    """The tests for one mutant.

    Attributes:
        first: the few that are fastest, of different files.
        rest: the others, as far as the time goes.
        left: how many were left out for lack of it.
    """

    first: tuple[str, ...]
    rest: tuple[str, ...]
    left: int


class Recordings:
    """What every fast test runs.

    A file of tests is recorded anew when it changes. What it runs may change with the product, too: lines are kept
    per function, so that a change elsewhere does no harm. A recording of an older product may choose too few tests,
    which makes survivors, never deaths; `--record` makes all of it anew.
    """

    def __init__(self, folder: Path, commit: str, tests: Sequence[str] = FAST) -> None:
        self._folder, self._commit, self._blobs = folder / "recordings", commit, blobs(tests)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.seconds: dict[str, float] = {}
        self.commits: set[str] = set()
        self.failing: list[str] = []
        """Files of tests that fail without any mutant."""
        self._where: dict[tuple[str, str], dict[str, frozenset[int]]] = defaultdict(dict)

    def make(self, forks: Forks, say: Callable[[str], None], *, anew: bool) -> None:
        """Record what is not there yet."""
        missing = [path for path, blob in self._blobs.items() if anew or not self._file(blob).exists()]
        parts = [missing[at : at + TOGETHER] for at in range(0, len(missing), TOGETHER)]
        done = 0
        for part, _, ended in forks.all((part, Run({}, RECORDING, files=part, record=True)) for part in parts):
            for path in part:
                self._keep(path, ended)
            done += len(part)
            say(f"recording what each test runs: {done} of {len(missing)} files")

    def load(self) -> None:
        """Read what was recorded, as far as it was."""
        for path, blob in self._blobs.items():
            if self._file(blob).exists():
                self._load(path, json.loads(gzip.decompress(self._file(blob).read_bytes())))

    def there(self, test: str) -> bool:
        """Whether a test is one of today's; of a file that is not asked for now, its function counts."""
        path, _, name = test.partition("::")
        if path in self._blobs:
            return test in self.seconds
        file = ROOT / path
        return file.is_file() and f"def {name.partition('[')[0]}(" in file.read_text("utf-8")

    def choose(self, mutant: Mutant, source: bytes, most_seconds: float, killers: dict[str, int]) -> Choice:
        """The tests that run the statement; if none is known to, the function, the file or the files beside it."""
        tests = self._running(mutant, source)
        told = sorted((each for each in tests if each in killers), key=lambda each: (-killers[each], each))[:6]
        cheap = sorted(tests, key=lambda each: (self.seconds[each], each))
        first, files, spent = list(told), Counter[str](), 0.0
        for each in cheap:
            file = each.split("::")[0]
            room = files[file] < PER_FILE and (file in files or len(files) < FIRST_FILES)
            if each not in told and room and spent + self.seconds[each] <= FIRST_SECONDS:
                first.append(each)
                files[file] += 1
                spent += self.seconds[each]
        rest, spent = [], 0.0
        taken = set(first)
        for each in cheap:
            if each not in taken and spent + self.seconds[each] <= most_seconds:
                rest.append(each)
                spent += self.seconds[each]
        return Choice(tuple(_together(first)), tuple(_together(rest)), len(tests) - len(first) - len(rest))

    def _running(self, mutant: Mutant, source: bytes) -> set[str]:
        here = self._where.get((mutant.path, mutant.function), {})
        starts = dict(by_line(source).values())
        if here and mutant.function in starts:
            first = starts[mutant.function]
            span = range(mutant.span[0] - first, mutant.span[1] - first + 1)
            hit = {test for test, lines in here.items() if not lines.isdisjoint(span)}
            return hit or set(here)
        # What runs at import alone is no test's: those that run the rest of its file or, of a file that is all names
        # and classes, its neighbours.
        file = {test for (path, _), tests in self._where.items() if path == mutant.path for test in tests}
        folder = mutant.path.rpartition("/")[0]
        return file or {
            test for (path, _), tests in self._where.items() if path.rpartition("/")[0] == folder for test in tests
        }

    def _file(self, blob: str) -> Path:
        return self._folder / f"{blob}.json.gz"

    def _keep(self, path: str, ended: Ended) -> None:
        failed = [each for each in ended.failed if each.partition("::")[0] == path]
        if ended.code not in {0, 1, 5}:  # passed, some failed, none here is fast
            failed = [f"{path}: exit code {ended.code}: {ended.log[-300:]}"]
        tests = {name: each for name, each in ended.recorded.items() if name.partition("::")[0] == path}
        text = {"commit": self._commit, "failed": failed, "tests": tests}
        self._file(self._blobs[path]).write_bytes(gzip.compress(json.dumps(text).encode()))

    def _load(self, path: str, said: dict[str, Any]) -> None:
        self.commits.add(said["commit"])
        self.failing.extend(said["failed"])
        for test, of in said["tests"].items():
            name = path + test[test.find("::") :]  # recorded under another path, maybe
            if of["seconds"] > SLOWEST:
                continue
            self.seconds[name] = of["seconds"]
            for file, functions in of["where"].items():
                for function, lines in functions.items():
                    self._where[file, function][name] = frozenset(lines)


def blobs(tests: Sequence[str]) -> dict[str, str]:
    """Every file of tests in these folders -> its version."""
    lines = (line.split("\t") for line in git("ls-tree", "-r", "HEAD", *tests).splitlines())
    files = {path: about.split()[2] for about, path in lines}
    return {path: blob for path, blob in files.items() if Path(path).match("test_*.py")}


def _together(tests: list[str]) -> list[str]:
    """In the same order, but a file's one after the other, so that what they share is made once."""
    files: dict[str, list[str]] = {}
    for each in tests:
        files.setdefault(each.split("::")[0], []).append(each)
    return [each for file in files.values() for each in file]
