"""What a run found, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.mutants.judging import INSIDE, KILLED, SURVIVED, TIMEOUT, UNJUDGED, Verdict

PACKAGES = 2  # agent/core, not agent/core/explain
LONG = 160


@dataclass(frozen=True)
class Row:
    """What came of one fault of the kept table.

    Attributes:
        name: its own.
        finding: the number of the finding that it brings back, "" for none.
        why: what it would do.
        verdict: as a mutant's, or that it was not run or cannot be put in.
        by: the test that noticed it, or the reason.
    """

    name: str
    finding: str
    why: str
    verdict: str
    by: str


@dataclass
class Result:
    """All that is known of a sample.

    Attributes:
        seed: of the sample.
        commit: that was judged.
        possible: how many mutants there are.
        verdicts: of those that were judged, in the sample's order.
        proofs: of those that change nothing, by name.
        table: rows of the kept table.
        controls: runs without a change.
        false_alarms: tests that failed in them.
        failing: tests that failed while they were recorded, and judge nothing.
    """

    seed: int
    commit: str
    possible: int = 0
    verdicts: Sequence[Verdict] = ()
    proofs: Mapping[str, str] = field(default_factory=dict)
    table: Sequence[Row] = ()
    controls: int = 0
    false_alarms: Sequence[str] = ()
    failing: Sequence[str] = ()

    @property
    def survivors(self) -> list[Verdict]:
        """Those that live and are not proven to change nothing."""
        return [each for each in self.verdicts if each.verdict == SURVIVED and each.name not in self.proofs]

    def share(self, verdicts: Iterable[Verdict] | None = None) -> float:
        """Per cent that died, of those that could."""
        counted = [
            each for each in (self.verdicts if verdicts is None else verdicts)
            if each.verdict != UNJUDGED and each.name not in self.proofs
        ]  # fmt: skip
        return 100.0 * sum(each.dead for each in counted) / len(counted) if counted else 100.0


def as_json(result: Result) -> str:
    """One object."""
    text: dict[str, Any] = {
        "seed": result.seed, "commit": result.commit, "possible": result.possible,
        "judged": len(result.verdicts), "killed_percent": round(result.share(), 2),
        "verdicts": [{**asdict(each), "equivalent": result.proofs.get(each.name, "")} for each in result.verdicts],
        "table": [asdict(each) for each in result.table],
        "controls": result.controls, "false_alarms": list(result.false_alarms), "failing": list(result.failing),
    }  # fmt: skip
    return json.dumps(text, indent=2)


def as_markdown(result: Result) -> str:
    """A page, or the part of one that was asked for."""
    lines: list[str] = []
    if result.verdicts:
        lines += _sample(result)
    if result.table:
        lines += _table(result)
    return "\n".join(lines)


def _table(result: Result) -> list[str]:
    noticed = sum(each.verdict in {KILLED, TIMEOUT} for each in result.table)
    return [
        "## The kept table", "",
        "Faults that once no test noticed (`tools/mutants/table.yaml`), and faults that bring a",
        "[finding](decisions.md#findings) back (`tools/mutants/findings.yaml`), put into the code by",
        "`make mutants ARGS=--table`:",
        f"{noticed} of {len(result.table)} are noticed.", "",
        "| fault | finding | what it would do | verdict | by, or why |", "|---|---|---|---|---|",
        *(
            f"| {each.name} | {each.finding} | {_cell(each.why)} | {each.verdict} | {_cell(_test(each.by))} |"
            for each in result.table
        ), "",
    ]  # fmt: skip


def _test(name: str) -> str:
    """A test without its file."""
    return name.rpartition("::")[2]


def _sample(result: Result) -> list[str]:
    counted = Counter(each.commit for each in result.verdicts)
    share = f"{result.share():.1f} % of those that could be noticed were"
    lines = [
        f"## Sample of seed {result.seed}", "",
        f"{len(result.verdicts)} of {result.possible} mutants, judged at commit {result.commit[:12]}; {share}.",
        *(f"{number} of them died at commit {commit[:12]} already and were not run again."
          for commit, number in counted.items() if commit != result.commit),
        f"{result.controls} runs without a change; tests that failed in them: {len(result.false_alarms)}.", "",
        "| part | mutants | killed | time-out | survived | equivalent | not judged | killed of those that could be |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    parts: dict[str, list[Verdict]] = {}
    for each in result.verdicts:
        parts.setdefault("/".join(each.path.split("/")[:-1][:PACKAGES]), []).append(each)
    inside = [each for each in result.verdicts if each.path.startswith(INSIDE)]
    others = [each for each in result.verdicts if not each.path.startswith(INSIDE)]
    for name, verdicts in (*sorted(parts.items()), ("**core and engine**", inside), ("**elsewhere**", others)):
        words = Counter(
            "equivalent" if each.verdict == SURVIVED and each.name in result.proofs else each.verdict
            for each in verdicts
        )
        numbers = (
            len(verdicts),
            words[KILLED],
            words[TIMEOUT],
            words[SURVIVED],
            words["equivalent"],
            words[UNJUDGED],
        )
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {result.share(verdicts):.1f} % |")
    lines += ["", f"### Survivors ({len(result.survivors)})", ""]
    if result.survivors:
        lines += ["| place | function | change | tests that ran |", "|---|---|---|---:|"]
    for each in sorted(result.survivors, key=lambda verdict: (verdict.path, verdict.line)):
        ran = f"{each.tests}, {each.left} left out" if each.left else str(each.tests)
        lines.append(f"| {each.path}:{each.line} | {each.function} | {_change(each)} | {ran} |")
    proven = [each for each in result.verdicts if each.verdict == SURVIVED and each.name in result.proofs]
    lines += ["", f"### Equivalent ({len(proven)})", ""]
    for each in proven:
        lines.append(f"- {each.path}:{each.line}, {_change(each)}: {result.proofs[each.name]}")
    unjudged = [each for each in result.verdicts if each.verdict == UNJUDGED]
    lines += ["", *(f"Not judged: {each.path}:{each.line}, {_change(each)}: {_cell(each.by)}" for each in unjudged)]
    return [*lines, *(f"- fails without any mutant, judges nothing: {each}" for each in result.failing), ""]


def _change(verdict: Verdict) -> str:
    return f"`{_cell(verdict.before)}` -> `{_cell(verdict.after)}`"


def _cell(text: str) -> str:
    one = " ".join(text.split()).replace("|", "\\|")
    return one if len(one) <= LONG else f"{one[:LONG]}..."
