"""Who died, kept in the repository: a machine that has judged nothing yet goes on where another one ended."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tools.mutants.judging import Verdict
from tools.mutants.operators import Mutant

FILE = Path(__file__).with_name("killed.jsonl")
DIGITS = 12
Row = tuple[str, str, str, str, str]
"""Name of the mutant, fingerprint of its function, verdict, the test that noticed it, commit."""


def fingerprints(source: bytes) -> dict[str, str]:
    """Of each function and class of a file by its name, of the whole file by "": a hash of the text.

    Several of one name (a property's getter and setter) have one hash together.
    """
    texts = {"": source}
    lines = source.splitlines(keepends=True)

    def walk(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}".lstrip(".")
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            texts[name] = texts.get(name, b"") + b"".join(lines[first - 1 : node.end_lineno])
        for child in ast.iter_child_nodes(node):
            walk(child, name)

    walk(ast.parse(source), "")
    return {name: hashlib.sha256(text).hexdigest()[:DIGITS] for name, text in texts.items()}


def read(path: Path = FILE) -> dict[str, Row]:
    """What is kept, by the mutant's name; nothing where there is no file yet.

    Raises:
        ValueError: a line is no row.
    """
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return {name: (name, text, verdict, by, commit) for name, text, verdict, by, commit in rows}


def dead(
    rows: Mapping[str, Row],
    wanted: Iterable[Mutant],
    texts: Mapping[str, Mapping[str, str]],
    there: Callable[[str], bool],
) -> dict[str, Verdict]:
    """The verdicts that still count: the function's text is the same, and the test that noticed is still there.

    Args:
        rows: what is kept.
        wanted: the mutants of today.
        texts: `fingerprints` of each file.
        there: whether a test is one of today's, by its name.
    """
    found = {}
    for mutant in wanted:
        _, text, verdict, by, commit = rows.get(mutant.name, ("", "", "", "", ""))
        if text and text == texts[mutant.path].get(mutant.function) and ("::" not in by or there(by)):
            found[mutant.name] = Verdict(
                name=mutant.name, path=mutant.path, function=mutant.function, operator=mutant.operator,
                line=mutant.line, before=mutant.before, after=mutant.after, verdict=verdict, by=by, tests=0, left=0,
                seconds=0.0, commit=commit,
            )  # fmt: skip
    return found


def write(
    rows: Mapping[str, Row],
    verdicts: Iterable[Verdict],
    texts: Mapping[str, Mapping[str, str]],
    commit: str,
    path: Path = FILE,
) -> Sequence[Row]:
    """Keep those that died at this commit beside what is kept, and forget those that live by now; the rows."""
    found = dict(rows)
    for each in verdicts:
        if each.commit == commit:
            found.pop(each.name, None)
            if each.dead:
                text = texts[each.path][each.function]
                found[each.name] = (each.name, text, each.verdict, each.by, commit[:DIGITS])
    kept = sorted(found.values())
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept), "utf-8")
    return kept
