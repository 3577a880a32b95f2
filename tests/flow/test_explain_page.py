"""deploy/docs/explain.md names every key and word of the JSON. tests/docs/test_commands.py runs its examples."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path

from click.testing import CliRunner

from agent.cli import group
from agent.core.explain.values import AsOf, Lever, ListStance, LossReason, MergeRule, Origin, Verdict
from agent.forecast.whatif import Difference
from tests.docs import pages

PAGE = pages.DOCS / "explain.md"
STATE = "run/two-sockets"
"""The state folder that the page names; the examples run in another one."""


def output(command: str, state: Path) -> str:
    """What a command of the page prints, with its state in another folder."""
    words = shlex.split(command.removesuffix(" > /dev/null").replace(STATE, str(state)))
    assert words[0] == "numalign"
    with contextlib.chdir(pages.ROOT):
        done = CliRunner().invoke(group, words[1:])
    assert done.exit_code in (0, 1), done.output
    return done.output


def test_every_key_and_word_is_documented(tmp_path: Path) -> None:
    """Keys of the JSON of both commands, and every word that a program may meet."""
    state, text = tmp_path / "state", PAGE.read_text(encoding="utf-8")
    commands = [each.text for each in pages.commands() if each.page == PAGE and not each.place]
    assert len(commands) >= 5
    output(commands[0], state)  # makes what the others ask about
    keys: set[str] = set()
    for command in commands[1:]:
        body = json.loads(output(f"{command} --output json", state))
        keys |= set(body)
        for name in ("merges", "got", "asked", "pods"):
            keys |= {key for each in body.get(name, []) for key in each}
        keys |= {key for merge in body.get("merges", []) for each in merge["said"] for key in each}
    words = {
        word.value
        for kind in (Verdict, AsOf, Origin, ListStance, MergeRule, LossReason, Lever, Difference)
        for word in kind
    }
    assert {each for each in keys | words if f"`{each}`" not in text} == set()
