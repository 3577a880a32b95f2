"""What mixed containers read to know which CPUs are theirs: a folder of the host each, mounted read-only by NRI.

    <state folder>/cpus/<pod uid>/<container>/assigned      NUMALIGN_EXCLUSIVE_CPUS=4-7
                                                            NUMALIGN_SHARED_CPUS=0-1

The environment has the same two words, those of the start. The service's loop writes the file as soon as the grant is
saved. The runtime's question only looks whether it was written: a disk that hangs delays no answer (safety.md S9).
The file is replaced by rename whenever a resize, or the shared pool, changed them and the kernel has the new set. The
folder is mounted and not the file, since a mount of a file would keep showing the one that was replaced. It goes when
the ledger has its pod no more: nothing of that runs then. An agent that starts again goes on with the folders that it
finds.

Nothing is synced to the disk: after a power cut the container is gone as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.core.cgroups.desired import share
from agent.core.request.mixed import assigned
from agent.model.idset import CpuSet
from agent.node.state import State

_log = logging.getLogger(__name__)

FOLDER, FILE = "cpus", "assigned"
DESTINATION = "/run/numalign/cpus"
"""Where a container sees its folder."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})", re.ASCII)
"""Of a pod's uid, and of a container."""


def words_of(state: State, uid: str, container: str) -> Mapping[str, str]:
    """Make the variables of a container that is, or was, mixed, by the saved grants; none before the first save."""
    if (uid, container) in state.unsaved:
        return {}
    desired = share(state.in_effect, uid, container, state.node.rules, state.node.machine)
    whole = desired.cpus or CpuSet()
    own = whole - desired.shared if desired.exclusive else CpuSet()
    return assigned(own, whole - own)


class CpuFiles:
    """The folders of this node.

    Args:
        state: the agent's own folder.
        on_host: the same as the host names it, "" where it has the same name.
    """

    def __init__(self, state: Path, on_host: str = "") -> None:
        self._folder, self._on_host = state / FOLDER, Path(on_host or state) / FOLDER
        self._mounting = False
        self._seen: State | None = None
        self._told = False
        self._uids = set[str]()
        with contextlib.suppress(OSError):  # there is none, or none that can be read
            self._uids = {each.name for each in self._folder.iterdir()}
        self._written: dict[tuple[str, str], str] = {}

    def begin(self) -> None:
        """A runtime has synchronized the agent, and mounts folders from now on."""
        self._mounting, self._seen = True, None

    def mount(self, state: State, uid: str, container: str) -> tuple[tuple[str, str], ...]:
        """A container is created: (folder of the host, where it sees it), none before its file is written."""
        is_mixed = state.saved is not None and container in state.saved.cpus.mixed.get(uid, {})
        if not is_mixed or (uid, container) not in self._written:
            return ()
        return ((str(self._on_host / uid / container), DESTINATION),)

    def follow(self, snapshot: State, at_rest: Callable[[], State]) -> None:
        """Bring the files to what is in force; asked several times a second.

        Args:
            snapshot: the state that counts.
            at_rest: the state when nothing is being written; waits for that.
        """
        gone = [key for key in self._written if not self._folder.joinpath(*key, FILE).is_file()]
        for key in gone:
            del self._written[key]  # a mount of what is not there would keep the container from starting
        if (snapshot is self._seen and not gone) or not (snapshot.ledger.cpus.mixed or self._uids):
            return
        state = at_rest()
        saved, done = state.saved, state.settled or bool(state.unenforced)
        for uid, mixed in saved.cpus.mixed.items() if saved and self._mounting else ():
            for name in sorted(name for name in mixed if (uid, name) not in self._written):
                done = self._keep(uid, name, words_of(state, uid, name)) and done
        for uid in self._uids & saved.pods.keys() if saved and done else ():
            lacking = state.unenforced.get(uid, {})
            for name in self._told_in(uid) if "" not in lacking else ():
                done = (name in lacking or self._keep(uid, name, words_of(state, uid, name))) and done
        for uid in self._uids - (saved or state.ledger).pods.keys() if state.listed else ():
            self._remove(uid)
        self._seen = state if done else None

    def _told_in(self, uid: str) -> list[str]:
        """List the containers of a pod that have a folder, also a container that lost its shared CPUs since."""
        try:
            there = [each.name for each in (self._folder / uid).iterdir() if each.is_dir()]
        except OSError:  # removed by another program: a running container has no file any more
            return []
        return [name for name in sorted(there) if _NAME.fullmatch(name)]

    def _keep(self, uid: str, container: str, words: Mapping[str, str]) -> bool:
        """Replace a file that has another text; return True if it has the text now. A fault is logged once."""
        if not (_NAME.fullmatch(uid) and _NAME.fullmatch(container)):
            return False
        text = "".join(f"{name}={value}\n" for name, value in words.items())
        folder = self._folder / uid / container
        try:
            if self._written.get((uid, container)) == text and (folder / FILE).is_file():
                return True
            for each in (self._folder, folder.parent, folder):
                each.mkdir(mode=0o755, exist_ok=True)
                each.chmod(0o755)  # readable for every user of a container, whatever the agent's umask
            spare = folder / f".{FILE}.new"
            spare.write_text(text, encoding="ascii")
            spare.chmod(0o644)
            spare.replace(folder / FILE)
        except OSError as error:
            if not self._told:
                _log.warning("mixed containers are not told which CPUs are theirs: %s", error)
            self._told = True
            return False
        self._uids.add(uid)
        self._written[uid, container], self._told = text, False
        return True

    def _remove(self, uid: str) -> None:
        shutil.rmtree(self._folder / uid, ignore_errors=True)
        if not (self._folder / uid).exists():
            self._uids.discard(uid)
            self._written = {key: text for key, text in self._written.items() if key[0] != uid}


def forget(state: Path) -> None:
    """Remove all files after a release, when no container has CPUs of its own. Raises OSError if that fails."""
    with contextlib.suppress(FileNotFoundError):  # no container had any
        shutil.rmtree(os.fspath(state / FOLDER))
