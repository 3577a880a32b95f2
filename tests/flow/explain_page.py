"""The examples of deploy/docs/explain.md and README.md; `python -m tests.flow.explain_page` writes their output."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from agent.cli import group

HERE = Path(__file__).resolve().parents[2]
PAGE = HERE / "deploy" / "docs" / "explain.md"
README = HERE / "README.md"
STATE = "run/two-sockets"
"""The state folder that the page names; the examples run in another one."""
WIDTH = 100
_BLOCK = re.compile(r"```console\n\$ (numalign .*)\n((?:.*\n)*?)```\n")


def examples(page: Path = PAGE) -> Iterator[tuple[str, str]]:
    """Command and output, as a page has them."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield found[1], found[2]


def output(command: str, state: Path) -> str:
    """What a command of the page prints, with its state in another folder."""
    quiet = command.endswith(" > /dev/null")
    words = shlex.split(command.removesuffix(" > /dev/null").replace(STATE, str(state)))
    assert words[0] == "numalign"
    with contextlib.chdir(HERE):
        done = CliRunner().invoke(group, words[1:], env={"COLUMNS": str(WIDTH)})
    assert done.exit_code in (0, 1), done.output
    lines = "" if quiet else "".join(f"{line.rstrip()}\n" for line in done.output.splitlines())
    return lines.replace(str(state), STATE)


def main() -> None:
    """Write all outputs into the page."""
    state = HERE / STATE

    def filled(found: re.Match[str]) -> str:
        return f"```console\n$ {found[1]}\n{output(found[1], state)}```\n"

    for page in (PAGE, README):
        page.write_text(_BLOCK.sub(filled, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
