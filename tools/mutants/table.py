"""Known faults, found anew in today's code by their text.

table.yaml has those that once nothing noticed, findings.yaml those that bring a finding back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from tests.docs import citations
from tools.mutants.choosing import Choice
from tools.mutants.operators import PYTHON, Mutant
from tools.mutants.session import by_line

HERE = Path(__file__).parent
FILES = "table.yaml", "findings.yaml"


@dataclass(frozen=True)
class Entry:
    """One fault.

    Attributes:
        name: short, for people.
        path: the file that it was in when it was written down; a file of the product, or a manifest.
        old: what stands there; blanks and line ends count as one.
        new: what is put there.
        why: what goes wrong for whom when nobody notices.
        by: the tests that notice it: files (of a finding, its tests in them), or single ones; they are tried first.
        equivalent: the proof that nothing can be noticed, "" for a fault that a test must notice.
        finding: the number of the finding that it brings back, "3b"; "" for none.
    """

    name: str
    path: str
    old: str
    new: str
    why: str
    by: tuple[str, ...] = ()
    equivalent: str = ""
    finding: str = ""


def entries() -> list[Entry]:
    """All of both tables."""
    return [
        Entry(**{**each, "by": tuple(each.get("by", ())), "finding": str(each.get("finding", ""))})
        for name in FILES
        for each in yaml.safe_load((HERE / name).read_text("utf-8"))
    ]


def tests_of(entry: Entry) -> Choice:
    """The tests that the table names: of a file, those of the entry's finding where it has one."""
    own = [test for test, number in citations.findings().items() if number == entry.finding]
    found = {by: [test for test in own if test.partition("::")[0] == by] or [by] for by in entry.by}
    return Choice(tuple(chain(*found.values())), (), 0)


def equivalents() -> dict[str, str]:
    """Mutants of the operators that change nothing that can be noticed: name -> proof."""
    said: list[dict[str, Any]] = yaml.safe_load((HERE / "equivalent.yaml").read_text("utf-8")) or []
    return {each["name"]: each["proof"] for each in said}


def mutant(tree: Path, entry: Entry, files: list[str]) -> Mutant | None:
    """The fault in today's code; None when its text is gone, or stands there more than once."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in entry.old.split()).encode())
    own = [entry.path] if (tree / entry.path).is_file() else []
    for paths in (own, files):
        found = [(path, each) for path in paths for each in pattern.finditer((tree / path).read_bytes())]
        if len(found) == 1:
            path, place = found[0]
            source = (tree / path).read_bytes()
            first = source.count(b"\n", 0, place.start()) + 1
            last = source.count(b"\n", 0, place.end()) + 1
            function = by_line(source).get(last, ("", 0))[0] if path.endswith(PYTHON) else ""
            return Mutant(
                path=path, function=function, operator="table", line=first, span=(first, last),
                start=place.start(), end=place.end(), before=entry.name, after=entry.new.rstrip("\n"),
            )  # fmt: skip
    return None
