"""The reference of the command line is what the commands say of themselves."""

from __future__ import annotations

import re

from agent.cli import COMMANDS
from tests.docs import cli


def test_the_reference_of_the_command_line_is_fresh() -> None:
    """`make cli-reference` writes it again."""
    assert cli.PAGE.read_text("utf-8") == cli.page(), "run `make cli-reference`"


def test_every_command_has_its_section() -> None:
    """Sub-commands of sub-commands, too, each with its options."""
    text = cli.PAGE.read_text("utf-8")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {f"numalign {name}" for name in COMMANDS} <= set(heads)
    assert "numalign config check" in heads
    assert text.count("--help") >= len(heads)
