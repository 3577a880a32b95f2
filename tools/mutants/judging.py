"""A sample of mutants, each judged by the tests that run it. What is known is kept: a run goes on where one ended."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tools.mutants.choosing import Choice, Recordings
from tools.mutants.forks import Ended, Forks, Run
from tools.mutants.operators import Mutant, mutants

KILLED, SURVIVED, TIMEOUT, UNJUDGED = "killed", "survived", "time-out", "not judged"
INSIDE = ("agent/core/", "agent/engine/", "agent/forecast/", "agent/node/")
"""Where decisions are made: two of three mutants are taken from here."""
NO_IMPORT = 4
"""pytest's exit code when conftest.py cannot be imported, since the product cannot."""
SOON = 0.3
"""Seconds: a test that takes as long may wait for something, in vain where the machine does other things."""
CONTROL = 25
"""Each so manieth run is one without a change, which must survive."""
FEW = 4
"""Files of tests that a process which has collected nothing tries before the others."""
AT_LEAST, PER_SECOND = 20.0, 2.0
"""A run's limit: so many seconds, and so many more for each that its tests took when they were recorded."""


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant.

    Attributes:
        name: of the mutant.
        path: its file.
        function: its function.
        operator: its kind.
        line: where it begins.
        before: what stood there.
        after: what was put there.
        verdict: one of the four words above.
        by: the test that noticed it.
        tests: how many were chosen.
        left: how many were left out for lack of time.
        seconds: on the clock.
        commit: that it was judged at.
    """

    name: str
    path: str
    function: str
    operator: str
    line: int
    before: str
    after: str
    verdict: str
    by: str
    tests: int
    left: int
    seconds: float
    commit: str

    @property
    def dead(self) -> bool:
        """Whether a test noticed it, be it by waiting in vain."""
        return self.verdict in {KILLED, TIMEOUT}


class Verdicts:
    """What is known of a commit's mutants, and of other commits'."""

    def __init__(self, folder: Path, commit: str) -> None:
        self._folder, self._commit = folder / "verdicts", commit
        self._folder.mkdir(parents=True, exist_ok=True)
        self.known = {each.name: each for each in _read(self._folder / f"{commit}.jsonl")}

    def add(self, verdict: Verdict) -> None:
        """Keep one."""
        self.known[verdict.name] = verdict
        with (self._folder / f"{self._commit}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")

    def killed_before(self) -> dict[str, Verdict]:
        """Those that died at another commit, by name: the newest verdict of each counts."""
        files = sorted(self._folder.glob("*.jsonl"), key=lambda each: each.stat().st_mtime)
        found = {each.name: each for file in files if file.stem != self._commit for each in _read(file)}
        return {name: each for name, each in found.items() if each.dead}


def _read(path: Path) -> Iterator[Verdict]:
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            yield Verdict(**json.loads(line))
        except (ValueError, TypeError):
            continue  # the line that a kill cut off


def listed(tree: Path, files: Sequence[str]) -> list[Mutant]:
    """Every mutant of these files."""
    return [mutant for path in files for mutant in mutants(path, (tree / path).read_bytes())]


def sample(found: Sequence[Mutant], seed: int) -> list[Mutant]:
    """In the seed's order, which a change elsewhere leaves; of core and engine two for each of the others."""
    order = sorted(found, key=lambda each: hashlib.sha256(f"{seed} {each.name}".encode()).digest())
    inside = [each for each in order if each.path.startswith(INSIDE)]
    others = [each for each in order if not each.path.startswith(INSIDE)]
    taken = []
    while inside and others:
        taken += [*inside[:2], others[0]]
        del inside[:2], others[:1]
    return [*taken, *inside, *others]


class Judge:
    """Runs the tests of each mutant and keeps what came of it."""

    def __init__(
        self,
        tree: Path,
        forks: Forks,
        recordings: Recordings,
        verdicts: Verdicts,
        *,
        commit: str,
        most_seconds: float,
        given: Mapping[str, Choice] | None = None,
    ) -> None:
        self._tree, self._forks, self._recordings, self._verdicts = tree, forks, recordings, verdicts
        self._commit, self._most, self._given = commit, most_seconds, given or {}
        self._killers: dict[str, Counter[str]] = {}
        self._trusted: set[str] = set()
        self._doubted: dict[str, list[tuple[Mutant, Verdict]]] = {}
        self._next: deque[tuple[Mutant | str, Run]] = deque()
        self.controls = 0
        self.false_alarms: list[str] = []
        """Tests that failed although nothing was changed: they judge nothing."""
        for each in verdicts.known.values():
            self._learn(each)

    def run(self, wanted: Sequence[Mutant], until: float, say: Callable[[Verdict], None]) -> None:
        """Judge those that are not known yet, until a time of the monotonic clock."""
        fresh = self._fresh(wanted, until)
        more = True
        while more or self._next:  # what is doubted last is asked again when nothing else runs any more
            more = False
            for about, run, ended in self._forks.all(self._runs(fresh)):
                for verdict in (
                    self._settled(about, ended) if isinstance(about, str) else self._told(about, run, ended)
                ):
                    self._learn(verdict)
                    self._verdicts.add(verdict)
                    say(verdict)

    def _runs(self, fresh: Iterator[tuple[Mutant | str, Run]]) -> Iterator[tuple[Mutant | str, Run]]:
        while True:
            following = self._next.popleft() if self._next else next(fresh, None)
            if following is None:
                return
            yield following

    def _fresh(self, wanted: Sequence[Mutant], until: float) -> Iterator[tuple[Mutant | str, Run]]:
        count = 0
        for mutant in wanted:
            if time.monotonic() >= until:
                return
            if mutant.name in self._verdicts.known:
                continue
            run = self._of(mutant)
            if run is None:
                continue
            yield mutant, run
            count += 1
            if count % CONTROL == 0:
                self.controls += 1
                yield "", replace(run, change={})

    def _of(self, mutant: Mutant) -> Run | None:
        """The run that judges a mutant; None when it is no Python."""
        source = (self._tree / mutant.path).read_bytes()
        choice = self._given.get(mutant.name) or self._recordings.choose(
            mutant, source, self._most, self._killers.get(mutant.path, {})
        )
        try:
            changed = mutant.apply(source)
        except SyntaxError:
            return None
        stages = [each for each in (*_parted(choice.first), choice.rest) if each]
        seconds = sum(self._recordings.seconds.get(each, 10.0) for stage in stages for each in stage)
        limit = AT_LEAST + PER_SECOND * seconds
        hot = mutant.name not in self._given
        return Run({mutant.path: changed}, limit, stages=stages, left=choice.left, skip=self.false_alarms, hot=hot)

    def _told(self, mutant: Mutant, run: Run, ended: Ended) -> Iterator[Verdict]:
        """The verdict, unless it rests on a test that was not seen to pass, after the same ones, without a change."""
        verdict = self._verdict(mutant, run, ended)
        if not run.again and self._hasty(verdict):
            stages = _until(run.stages, verdict.by) if verdict.by else run.stages
            self._next.append((mutant, replace(run, stages=stages, again=verdict.by or TIMEOUT)))
            return
        if run.again not in {"", TIMEOUT} and verdict.by != run.again:
            self.false_alarms.append(run.again)  # fails now and then
            if (fresh := self._of(mutant)) is not None:
                self._next.append((mutant, fresh))
            return
        if verdict.verdict != KILLED or "::" not in verdict.by or verdict.by in self._trusted:
            yield verdict
            return
        if verdict.by not in self._doubted:
            self._next.append((verdict.by, replace(run, change={}, stages=_until(run.stages, verdict.by))))
        self._doubted.setdefault(verdict.by, []).append((mutant, verdict))

    def _hasty(self, verdict: Verdict) -> bool:
        """Whether it may come of what else the machine does: it must come twice."""
        if verdict.verdict == TIMEOUT:
            return True
        return verdict.verdict == KILLED and self._recordings.seconds.get(verdict.by, SOON) >= SOON

    def _settled(self, test: str, ended: Ended) -> Iterator[Verdict]:
        """A run without a change has ended, for a test that killed or, "", for all of a choice."""
        self.false_alarms += [each for each in ended.failed if each not in self.false_alarms]
        waiting = self._doubted.pop(test, [])
        if test and not ended.failed and ended.code == 0:
            self._trusted.add(test)
            yield from (verdict for _, verdict in waiting)
            return
        for mutant, _ in waiting:
            if (run := self._of(mutant)) is not None:
                self._next.append((mutant, run))

    def _verdict(self, mutant: Mutant, run: Run, ended: Ended) -> Verdict:
        by = ended.failed[0] if ended.failed else ""
        if ended.code == NO_IMPORT:
            word, by = KILLED, "nothing can be imported"
        elif not run.stages:
            word, by = SURVIVED, "no fast test runs it"
        elif ended.failed:
            word = KILLED
        elif ended.out_of_time:
            word = TIMEOUT
        elif ended.code == 0 and not ended.ran:
            word, by = UNJUDGED, "all of its tests were skipped"
        elif ended.code == 0:
            word = SURVIVED
        elif ended.code < 0:
            word, by = KILLED, f"signal {-ended.code}"
        else:
            word, by = UNJUDGED, f"exit code {ended.code}: {ended.log[-300:]}"
        return Verdict(
            name=mutant.name, path=mutant.path, function=mutant.function, operator=mutant.operator, line=mutant.line,
            before=mutant.before, after=mutant.after, verdict=word, by=by, tests=sum(map(len, run.stages)),
            left=run.left, seconds=round(ended.seconds, 1), commit=self._commit,
        )  # fmt: skip

    def _learn(self, verdict: Verdict) -> None:
        if verdict.verdict == KILLED and "::" in verdict.by and verdict.by in self._recordings.seconds:
            self._killers.setdefault(verdict.path, Counter())[verdict.by] += 1


def _parted(tests: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Those of the first few files, which are collected soon, and the others; a file's come one after the other."""
    files = list(dict.fromkeys(each.split("::")[0] for each in tests))[:FEW]
    count = sum(each.split("::")[0] in files for each in tests)
    return tests[:count], tests[count:]


def _until(stages: Sequence[Sequence[str]], test: str) -> list[Sequence[str]]:
    """The stages up to a test, or all of them where they name whole files."""
    found: list[Sequence[str]] = []
    for stage in stages:
        if test in stage:
            return [*found, stage[: stage.index(test) + 1]]
        found.append(stage)
    return found
