"""Mutation testing: `make mutants`. README.md in this folder says how it works."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.mutants import kept, places, report, table
from tools.mutants.choosing import Choice, Recordings, blobs
from tools.mutants.forks import Forks
from tools.mutants.judging import KILLED, SURVIVED, Judge, Verdict, Verdicts, listed, sample
from tools.mutants.operators import Mutant

DONE, LIVING, USAGE, BROKEN, INTERRUPTED = 0, 1, 2, 3, 130


def main(words: list[str]) -> int:
    """Run as asked; the exit code."""
    asked = _arguments(words)
    scratch = Path(tempfile.mkdtemp(prefix="nm-"))
    try:
        return _Command(asked, scratch).run()
    except KeyboardInterrupt:
        print("\ninterrupted: what was recorded is kept; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description="Puts small faults into copies of the product, one at a time, and sees whether a test notices. "
        "Judges the last commit; what is known is kept in ~/.cache/numalign/mutants, so the same command goes on.",
        epilog="Exit codes: 0 enough died, 1 more survived, 2 wrong arguments, 3 could not run.",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to go on (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--number", type=int, default=0, help="end after the first so many mutants of the sample")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATH", help="a folder or file, e.g. agent/engine"
    )
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="judge by these tests alone")
    parser.add_argument("--name", default="", help="only mutants whose name holds this (path::function::...)")
    parser.add_argument("--table", action="store_true", help="the kept table instead of a sample")
    parser.add_argument("--keep-killed", action="store_true", help="what died at an earlier commit is not run again")
    parser.add_argument("--keep", action="store_true", help="write who died into killed.jsonl, for other machines")
    parser.add_argument("--afresh", action="store_true", help="judge again what killed.jsonl says died")
    parser.add_argument("--again", action="store_true", help="judge again what survived at this commit")
    parser.add_argument("--record", action="store_true", help="record anew which tests run what")
    parser.add_argument("--most-seconds", type=float, default=60.0, help="of tests for one mutant (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once (one for each CPU)")
    parser.add_argument("--at-least", type=float, default=100.0, help="per cent that must die for exit code 0 (100)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="on standard output")
    parser.add_argument("--report", type=Path, help="write the Markdown to this file, too")
    return parser.parse_args(words)


class _Command:
    """One run of the command."""

    def __init__(self, asked: argparse.Namespace, scratch: Path) -> None:
        self._asked, self._scratch = asked, scratch
        self._commit = places.commit()
        self._tree = places.export(self._commit)
        self._result = report.Result(asked.seed, self._commit, proofs=table.equivalents())

    def run(self) -> int:
        """Export, record, judge, report."""
        if places.git("status", "--porcelain", "agent", "tests", "tools"):
            _say("the work tree has changes that are not committed: the last commit is judged, without them\n")
        files = places.product(self._tree)
        only = [each for each in files if not self._asked.only or each.startswith(tuple(self._asked.only))]
        if not only:
            _say(f"no file of the product is in {', '.join(self._asked.only)}\n")
            return USAGE
        tests = () if self._asked.table else tuple(blobs(self._asked.tests or places.FAST))
        forks = Forks(self._tree, self._scratch, max(1, self._asked.jobs), files=tests)
        try:
            return self._judged(forks, files, only)
        finally:
            forks.close()

    def _judged(self, forks: Forks, files: list[str], only: list[str]) -> int:
        asked = self._asked
        recordings = Recordings(places.STATE, self._commit, asked.tests or places.FAST)
        if not asked.table or asked.record:
            recordings.make(forks, _say, anew=asked.record)
        recordings.load()
        if not recordings.seconds and not asked.table:
            _say("no test passes without a mutant: nothing can be judged\n")
            return BROKEN
        self._result.failing = recordings.failing
        verdicts = Verdicts(places.STATE, self._commit)
        found, given = dict[table.Entry, Mutant | None](), dict[str, Choice]()
        if asked.table:
            found = {
                each: table.mutant(self._tree, each, files) for each in table.entries() if asked.name in each.name
            }
            wanted = [each for each in found.values() if each is not None]
            given = {
                each.name: table.tests_of(entry) for entry, each in found.items() if each is not None and entry.by
            }
        else:
            every = listed(self._tree, only)
            self._result.possible = len(every)
            wanted = [each for each in sample(every, asked.seed) if asked.name in each.name]
            wanted = wanted[: asked.number or None]
        texts = {each: kept.fingerprints((self._tree / each).read_bytes()) for each in files}
        rows = kept.read()
        if not asked.table and not asked.afresh:
            verdicts.known = {**kept.dead(rows, wanted, texts, recordings.there), **verdicts.known}
        if asked.keep_killed:
            verdicts.known = {**verdicts.killed_before(), **verdicts.known}
        if asked.again:
            verdicts.known = {name: each for name, each in verdicts.known.items() if each.dead}
        judge = Judge(
            self._tree, forks, recordings, verdicts, commit=self._commit, most_seconds=asked.most_seconds, given=given
        )
        end = time.monotonic() + asked.minutes * 60
        try:
            judge.run(wanted, end, _progress(len(wanted), end))
        except KeyboardInterrupt:
            _say("interrupted: what was judged is told, and kept; the same command goes on")
        _say("\n")
        if asked.keep and not asked.table:
            kept.write(rows, verdicts.known.values(), texts, self._commit)
        self._result.controls, self._result.false_alarms = judge.controls, judge.false_alarms
        known = [verdicts.known[each.name] for each in wanted if each.name in verdicts.known]
        return self._told(known, found)

    def _told(self, known: list[Verdict], found: dict[table.Entry, Mutant | None]) -> int:
        if self._asked.table:
            verdicts = {each.name: each for each in known}
            self._result.table = [
                _row(entry, mutant, verdicts)
                for entry, mutant in sorted(found.items(), key=lambda each: each[0].name)
            ]
            share = 0.0 if any(each.verdict == SURVIVED for each in self._result.table) else 100.0
        else:
            self._result.verdicts = known
            share = self._result.share()
        text = report.as_markdown(self._result)
        print(report.as_json(self._result) if self._asked.output == "json" else text)
        if self._asked.report:
            self._asked.report.write_text(text, "utf-8")
        return DONE if share >= self._asked.at_least else LIVING


def _row(entry: table.Entry, mutant: Mutant | None, verdicts: Mapping[str, Verdict]) -> report.Row:
    if mutant is None:
        verdict, by = "gone", "its text is in today's code no more, or more than once"
    elif mutant.name not in verdicts:
        verdict, by = "not run", "the time was over"
    else:
        known = verdicts[mutant.name]
        verdict, by = known.verdict, known.by
        if verdict == SURVIVED and entry.equivalent:
            verdict, by = "equivalent", entry.equivalent
    return report.Row(entry.name, entry.finding, entry.why, verdict, by)


def _progress(number: int, end: float) -> Callable[[Verdict], None]:
    count: dict[str, int] = {}

    def say(verdict: Verdict) -> None:
        count[verdict.verdict] = count.get(verdict.verdict, 0) + 1
        words = ", ".join(f"{how_many} {word}" for word, how_many in sorted(count.items()))
        left = max(0.0, end - time.monotonic()) / 60
        if verdict.verdict != KILLED:
            change = f"{verdict.before[:60]!r} -> {verdict.after[:60]!r}"
            _say(f"{verdict.verdict}: {verdict.path}:{verdict.line} {change}\n")
        _say(f"{sum(count.values())} of {number}: {words}; {left:.0f} min left")

    return say


def _say(text: str) -> None:
    """One line that the next one replaces, on a terminal; elsewhere a line each."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text.strip():
        print(text.rstrip("\n"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
