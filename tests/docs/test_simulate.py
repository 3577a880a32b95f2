"""The outputs in simulate.md are what the commands print. `python -m tests.docs.test_simulate` writes them again."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.docs import pages
from tests.docs.stranger import PROGRAMS, plain

PAGE = pages.DOCS / "simulate.md"
_SHOWN = re.compile(r"(```console\n\$ (.*?)```\n\n```text\n)(.*?)(```)", re.DOTALL)


def output(command: str) -> str:
    """What a command prints, without blanks at the ends of lines."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=pages.ROOT, env={**os.environ, "PATH": PROGRAMS, "COLUMNS": "120"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return plain(done.stdout) + "\n"


@pytest.mark.parametrize("number", range(3))
def test_outputs_are_real(number: int) -> None:
    """Each command's output follows it, letter by letter."""
    shown = _SHOWN.findall(PAGE.read_text("utf-8"))
    assert len(shown) == 3
    _, command, told, _ = shown[number]
    assert output(command) == told


def test_the_keys_for_programs_are_listed() -> None:
    """Every key of the JSON has its place in the table, and no other."""
    answer = json.loads(output("numalign simulate -o json --pods deploy/examples/fleet --root two-sockets || true"))
    (variant,) = answer["variants"]
    table = pages.section(PAGE, "For programs").replace("[]`", "`")
    listed = {
        word
        for line in table.splitlines()
        if line.startswith("| `")
        for word in re.findall(r"`\.?([^`]+)`", line.split("|")[1])
    }
    own = {"label", "config", "policy", "scope", "onMisalignment", "answers"}  # in the row of the variants
    assert listed == {*answer, *variant} - own
    assert own < set(variant)
    assert all(f"`{key}`" in table for key in (*own, *answer["variants"][0]["placements"][0]))
    assert all(f"`{state}`" in table for state in variant["states"])


def main() -> None:
    """Write the outputs into the page."""
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_SHOWN.sub(lambda match: match[1] + output(match[2]) + match[4], text), "utf-8")


if __name__ == "__main__":
    main()
