"""Looks whether containers have the memory policy that they ask for (numalign.io/memory-policy), for the condition.

Called by the loop on the clock. Nothing is repaired: no program can change the policy of another one that runs. A
policy counts as in force after the kernel showed it, until the kernel shows another one: it maps the policies of a
cgroup's processes when the memory nodes change, and does not map them back.
"""

from __future__ import annotations

import errno
import time

from agent.app.service.container_notes import ContainerNotes
from agent.core.cgroups.page_policies import Seen, note, page_policies
from agent.core.request.memory_policy import wish_of
from agent.engine.engine import Engine
from agent.errors import SysfsMalformedError
from agent.host.cgroups import Cgroups
from agent.model.cgroup import Cgroup

YOUNG = 3.0
"""Seconds after the start of a container in which its process may still be the runtime's own, without the policy."""
_UNSEEN = "the agent sees none of its processes"
_REMEDY = "nri.readMemoryPolicies of the chart lets it"


class MemoryPolicies(ContainerNotes):
    """What was seen of policies at the last look."""

    def __init__(self, cgroups: Cgroups) -> None:
        super().__init__(cgroups)
        self._in_force: dict[str, Seen] = {}

    def look(self, engine: Engine, runtime: str) -> None:
        """Read the policy of one process of each container that gets one, and report pods whose sentence changed.

        Args:
            engine: has the pods.
            runtime: name and version of the runtime that asks by NRI now, "" for none.

        Raises HostError.
        """
        node, ledger = engine.snapshot.node, engine.ledger
        acting = ledger.pods if engine.acting else {}
        asking = [uid for uid, record in acting.items() if wish_of(record.pod, node.rules)]
        if not self._cgroups.real or not (asking or self._notes):
            return
        policies = {uid: page_policies(ledger, uid, node.rules, node.machine) for uid in asking}
        seen, kept = dict[str, dict[str, Seen]](), self._in_force
        self._in_force = {}
        for cgroup, uid, name in self._containers(engine) if any(policies.values()) else ():
            if name in policies.get(uid, {}):
                found = self._seen(cgroup, str(policies[uid][name]), kept.get(cgroup.container_id))
                if found is not None:
                    seen.setdefault(uid, {})[name] = found
                    if found.shown == str(policies[uid][name]):
                        self._in_force[cgroup.container_id] = found
        self._tell(engine, {uid: note(each, seen.get(uid, {}), runtime) for uid, each in policies.items()})

    def _seen(self, cgroup: Cgroup, policy: str, before: Seen | None) -> Seen | None:
        """Read what the kernel shows of a container; what it showed before where that cannot be read now.

        None where nothing can be said yet, or not any more.
        """
        before = before if before is not None and before.shown == policy else None
        since = self._cgroups.since(cgroup.path)
        if since is None or time.time() - since < YOUNG:
            return before
        try:
            return Seen(self._cgroups.policy(cgroup.path))
        except SysfsMalformedError:
            return before or Seen(why="its cgroup does not list its processes")
        except OSError as error:
            return before or (None if error.errno == errno.ENOENT else Seen(why=_why(error)))


def _why(error: OSError) -> str:
    if error.errno == errno.ESRCH:
        return f"{_UNSEEN}: {_REMEDY}"
    cause = errno.errorcode.get(error.errno or 0, "EIO")
    what = f"/proc/PID/numa_maps of it cannot be read ({cause}: {error.strerror})"
    return f"{what}: {_REMEDY}" if error.errno in (errno.EACCES, errno.EPERM) else what
