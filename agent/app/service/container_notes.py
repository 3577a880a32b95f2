"""What a look at the containers of this node found, as a sentence on each pod, for its condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.model.cgroup import Cgroup, Level


class ContainerNotes:
    """The sentences of the last look.

    Args:
        cgroups: the tree; only a real kernel's has processes.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._notes: Mapping[str, str] = {}

    def note(self, uid: str) -> str:
        """Return the sentence on a pod's containers; "" for none."""
        return self._notes.get(uid, "")

    def _containers(self, engine: Engine) -> Iterator[tuple[Cgroup, str, str]]:
        """Yield the cgroup of each container, with its pod's uid and its name. Raises HostError."""
        names = engine.names
        for cgroup in self._cgroups.observe().cgroups:
            if cgroup.level is Level.CONTAINER:
                yield cgroup, *names.get(cgroup.container_id, ("", ""))

    def _tell(self, engine: Engine, told: Mapping[str, str]) -> None:
        """Keep the sentences, and report pods whose sentence changed."""
        before, self._notes = self._notes, told
        engine.retell(uid for uid in before.keys() | told.keys() if before.get(uid, "") != told.get(uid, ""))
