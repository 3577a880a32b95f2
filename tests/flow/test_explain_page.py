"""deploy/docs/explain.md: its examples and README's print what is shown; it names every key and word of the JSON."""

from __future__ import annotations

import json
from pathlib import Path

from agent.core.explain.values import AsOf, Lever, ListStance, LossReason, MergeRule, Origin, Verdict
from agent.forecast.whatif import Difference
from tests.flow.explain_page import PAGE, README, examples, output


def test_the_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    """Every command of the page, in its order; `python -m tests.flow.explain_page` writes them anew."""
    found = [*examples(), *examples(README)]  # the first one makes what the others ask about
    assert len(found) >= 6
    for command, shown in found:
        assert output(command, tmp_path / "state") == shown, command


def test_every_key_and_word_is_documented(tmp_path: Path) -> None:
    """Keys of the JSON of both commands, and every word that a program may meet."""
    state, text = tmp_path / "state", PAGE.read_text(encoding="utf-8")
    commands = [command for command, _ in examples()]
    output(commands[0], state)
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
