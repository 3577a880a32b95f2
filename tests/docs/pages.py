"""Reads the Markdown of README and deploy/docs: links, anchors, tables, console blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "deploy" / "docs"
PAGES = (
    *sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), ROOT / "deploy" / "machines" / "README.md",
)  # fmt: skip
READ_TOO = (
    ROOT / "charts" / "numalign" / "README.md",
    *sorted(page for folder in ("tests", "tools") for page in (ROOT / folder).rglob("README.md")),
)
"""Pages whose links and spelling are checked as well; their commands are not for readers of the docs."""
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block.

    Attributes:
        page: where it stands.
        place: the word after `console`: where it is to be run, "" for here.
        text: for a shell; may have several lines.
        output: what the page shows of what it prints, "" for nothing.
    """

    page: Path
    place: str
    text: str
    output: str = ""

    def __str__(self) -> str:
        return f"{self.page.stem}: {' '.join(self.text.split())[:200]}"


def commands() -> Iterator[Command]:
    """Every command of every console block, in the order of the pages."""
    for page in PAGES:
        for indent, language, body in _FENCE.findall(page.read_text("utf-8")):
            kind, _, place = language.strip().partition(" ")
            if kind == "console":
                lines = [line.removeprefix(indent) for line in body.splitlines()]
                yield from (Command(page, place, *each) for each in _commands(lines))


def blocks(page: Path, language: str) -> Iterator[str]:
    """The code blocks of a language."""
    for indent, word, body in _FENCE.findall(page.read_text("utf-8")):
        if word.strip() == language:
            yield "\n".join(line.removeprefix(indent) for line in body.splitlines())


def _commands(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What follows a prompt, with the lines that continue it; and what comes after, which is what it prints."""
    found: list[str] = []
    printed: list[str] = []
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if found:
                yield "\n".join(found), "\n".join(printed).rstrip()
            found, printed = [line[2:]], []
        elif found and not printed and _goes_on(found):
            found.append(line)
        else:
            printed.append(line.rstrip())


def _goes_on(lines: list[str]) -> bool:
    """Whether a command is not finished: a backslash at its end, or a here-document without its last line."""
    here = re.search(r"<<'?(\w+)'?", lines[0])
    return lines[-1].endswith("\\") or (here is not None and here.group(1) not in lines[1:])


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Targets of a page's links."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as Git hosts make them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def section(page: Path, head: str) -> str:
    """The text below a heading, up to the next."""
    text = page.read_text("utf-8")
    match = re.search(rf"^#+ {re.escape(head)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"{page} has no section {head}"
    return match.group(1)


def head(page: Path) -> str:
    """A page up to its first section: what is written by hand above those that are generated."""
    return page.read_text("utf-8").partition("\n## ")[0]


def remade(text: str, name: str, made: str) -> str:
    """A page's text with what stands between its marks <!-- NAME --> and <!-- end --> made again."""
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    return f"{before}{mark}{made}<!-- end -->{rest.partition('<!-- end -->')[2]}"


def first_cells(text: str) -> set[str]:
    """What stands in backquotes in the first column of a table."""
    return {each for line in text.splitlines() if line.startswith("| `") for each in [line.split("`")[1]]}
