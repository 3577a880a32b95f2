"""What is ignored has its reason on the line."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

_IGNORED = re.compile(r"#\s*(?:noqa|type: ignore|pragma)\b(?P<rest>.*)")
_SUPPRESSED = re.compile(r"\s*with .*\bsuppress\(")
_REASON = re.compile(r"[^#\w]*(?:[A-Z]+\d+[, ]*)*(?:\[[\w, -]+\])?\s*(?:-|–|#)\s*\w.*")


def test_whatever_is_ignored_says_why() -> None:
    """Linter, type checker and coverage are contradicted, and faults suppressed, with a reason on the same line."""
    assert [found for folder in ("agent", "tests", "tools") for found in _unreasoned(ROOT / folder)] == []


def test_a_line_without_a_reason_is_noticed(tmp_path: Path) -> None:
    """Each form alone, and a code or a bracket is no reason."""
    lines = [
        "a = 1  # noqa: F401", "a = 1  # noqa", "a = 1  # type: ignore[misc]", "with suppress(OSError):",
        "a = 1  # noqa: F401, PLR2004 - why", "a = 1  # type: ignore[misc]  # why", "with suppress(OSError):  # why",
    ]  # fmt: skip
    (tmp_path / "made.py").write_text(
        "".join(f"{line}\n    pass\n" if line[:4] == "with" else f"{line}\n" for line in lines)
    )
    assert [each.rpartition(":")[2] for each in _unreasoned(tmp_path)] == ["1", "2", "3", "4"]


def _unreasoned(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        with path.open("rb") as file:
            tokens = [each for each in tokenize.tokenize(file.readline) if each.type == tokenize.COMMENT]
        comments = {each.start[0]: each.string for each in tokens}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            comment = comments.get(number, "")
            ignored = _IGNORED.search(comment)
            silent = _SUPPRESSED.match(line) and not comment
            if silent or (ignored and not _REASON.fullmatch(ignored["rest"].removeprefix(":"))):
                yield f"{path}:{number}"
