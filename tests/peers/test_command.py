"""`python -m tests.peers`: what it says before it builds, and that its builds do not depend on a reader."""

from __future__ import annotations

import os
import sys

import pytest

from tests.peers import PeerMissingError, go
from tests.peers import __main__ as command
from tests.peers.ahead import Tier


def test_help_names_what_is_built_and_builds_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every tier, the minutes, where it is kept, the exit codes; a wrong argument is 2."""
    monkeypatch.setattr(go, "bring", None)
    for asked, code in ((["--help"], 0), (["all"], 2)):
        with pytest.raises(SystemExit) as ended:
            command.main(asked)
        assert ended.value.code == code
    said = capsys.readouterr().out
    for part in (*(tier.what for tier in command.BUILT.values()), "minutes", "is kept in", "exit codes: 0 "):
        assert part in said


def test_builds_go_on_when_the_reader_of_their_lines_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.peers | head -1`: each is built, and the exit code says whether one is missing."""
    built = list[str]()

    def missing() -> None:
        built.append("b")
        raise PeerMissingError("b needs Go")

    tiers = {"a": Tier("the first", {"a": lambda: built.append("a")}), "b": Tier("the second", {"b": missing})}
    monkeypatch.setattr(go, "bring", lambda: None)
    monkeypatch.setattr(command, "BUILT", tiers)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert command.main([]) == 1
    assert built == ["a", "b"]
