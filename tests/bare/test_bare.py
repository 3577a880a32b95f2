"""README's two commands work for an ordinary user on a machine that has nothing but Python, make and git."""

from __future__ import annotations

import os

import pytest

from tests import bare, programs

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("NUMALIGN_LAB_TESTS"), reason="makes a root of Debian for minutes: make bare runs it"
    ),
    pytest.mark.needs("mmdebstrap", "git", "unshare", "chroot"),
    pytest.mark.timeout(1800),
]


def test_readmes_commands_are_green_on_a_bare_machine() -> None:
    """`make run` and `make test` as README has them; `make check` names what it lacks before it starts a program."""
    commands, said = bare.typed(), ""
    assert {each.partition(" MACHINE")[0] for each in commands} == {*bare.WORDS}
    with bare.made() as machine:
        for command in commands:
            code, _, said = bare.ran(machine, command)
            assert code == 0, said[-3000:]
        assert "make check" in said.splitlines()[-1]
        assert not (machine.root / "home/user/.cache/numalign").exists()  # nothing was built
        said = "\n".join(bare.before_it_begins(machine, "make check"))
    for each in (*programs.PROGRAMS, programs.GO):
        assert each in said or each in PRESENT, said
    assert f"`{programs.COMMAND}` brings them" in said


PRESENT = ("git", "make", "tar", "mount", "umount", "unshare", "setpriv", "chroot", "gpg", "openssl", "mke2fs")
"""What a Debian with Python, make and git may have."""
