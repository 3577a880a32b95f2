"""The reference of the command line is what the commands say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys

from agent.cli import COMMANDS
from tests.docs import cli
from tests.docs.pages import ROOT


def test_the_reference_of_the_command_line_is_fresh() -> None:
    """`make cli-reference` writes it again.

    It is made in a process of its own: click keeps a command's help option as it was first asked for, and other tests
    ask commands without the group above them.
    """
    making = [sys.executable, "-c", "from tests.docs import cli; print(cli.page(), end='')"]
    made = subprocess.run(making, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert cli.PAGE.read_text("utf-8") == made, "run `make cli-reference`"


def test_every_command_has_its_section() -> None:
    """Sub-commands of sub-commands, too, each with its options."""
    text = cli.PAGE.read_text("utf-8")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {f"numalign {name}" for name in COMMANDS} <= set(heads)
    assert "numalign config check" in heads
    assert text.count("--help") >= len(heads)
