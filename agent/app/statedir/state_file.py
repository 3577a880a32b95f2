"""The file beside the ledger: what the agent remembers for a start without the API server, and reports for people.

One part for each module that writes here; a part that cannot be read is nothing, and costs no other one. The file is
sealed and replaced as a whole, as the checkpoint is (`agent.host.checkpoint`), by the agent's loop alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from agent.errors import CheckpointError, MalformedError
from agent.host import bounded
from agent.host.checkpoint import SIZE_LIMIT, opened, replace_file, sealed
from agent.model.fields import Field, mapping_of
from agent.model.valuejson import SAVED, value_from_json

FILE = "state.json"
VERSION = 1
EARLIER = ("node.json", "outside.json", "recovery.json", "settings.json")
"""What stood beside the ledger before; removed when this file is written. All but the first are reports."""
_LARGEST = 65536
"""Bytes of an earlier file."""
T = TypeVar("T")


def keep(state: Path, /, **parts: object) -> None:
    """Replace parts, for their owner alone to read; after a power cut there are the old ones or the new ones.

    Args:
        state: the state folder.
        parts: name -> a value of a type of its own; None removes it.

    Raises:
        OSError: it cannot be written, or would not be read again.
    """
    now = {name: part for name, part in {**_parts(state), **parts}.items() if part is not None}
    data = sealed(now, VERSION, SAVED.encoded)
    if len(data) > SIZE_LIMIT:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), FILE)
    replace_file(state / FILE, data)
    for name in EARLIER:
        with contextlib.suppress(OSError):  # a folder is not ours
            (state / name).unlink()


def part(state: Path, name: str, kind: type[T]) -> T | None:
    """A part as it was kept last; None where there is none, or none that this version reads."""
    found = raw(state, name)
    with contextlib.suppress(MalformedError):  # the agent writes it again
        return None if found is None else value_from_json(Field(found, name), kind, form=SAVED)
    return None


def raw(state: Path, name: str) -> object:
    """A part as JSON; None where there is nothing that can be trusted."""
    return _parts(state).get(name)


def _parts(state: Path) -> Mapping[str, object]:
    found: Mapping[str, object] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError, CheckpointError):  # as above
        path = state / FILE
        found = mapping_of(json.loads(opened(path, bounded.read(path, SIZE_LIMIT + 1, links=False), VERSION)))
    return {**found, **dict(_of_0_1_0(state))}


def _of_0_1_0(state: Path) -> Iterator[tuple[str, object]]:
    """What 0.1.0 remembered of the Node, where it wrote last: after an upgrade, and after a downgrade."""
    path, now = state / EARLIER[0], state / FILE
    with contextlib.suppress(OSError, ValueError, RecursionError):  # the Node tells it again
        if not now.exists() or path.stat().st_mtime_ns >= now.stat().st_mtime_ns:
            found = mapping_of(json.loads(bounded.read(path, _LARGEST, links=False)))
            names = {"cpuMilli": "cpu_milli", "memoryBytes": "memory", "observeOnly": "observe_only"}
            yield "node", {"known": True, **{new: found[old] for old, new in names.items() if old in found}}
