"""Opens the cgroup tree that --cgroup-root names, with the stand-in that makes its cgroups where no kubelet does.

    scratch   a plain folder below the state folder, whose kernel is simulated; nothing of the machine is touched
    auto      a folder of our own on this machine's cpuset hierarchy where we may make one, else scratch
    PATH      that cgroup mount: a kubelet's cgroups where there is one, else a folder of our own

Used by `agent.app.standalone`. `agent.app.places` has the words and folders that other commands need.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.app.places import AUTO, MOUNT, SCRATCH
from agent.errors import HostError, SettingsError
from agent.host.cgroups import Cgroups
from agent.host.standin import OWN_FOLDER, RealStandIn, ScratchStandIn, StandIn, has_kubelet
from agent.model.machine import Machine


@dataclass(frozen=True, slots=True)
class ServedTree:
    """A tree to serve.

    Attributes:
        cgroups: to observe and to write.
        standin: makes its cgroups; None where a kubelet does.
        where: its place, for messages.
    """

    cgroups: Cgroups
    standin: StandIn | None
    where: str

    @property
    def real(self) -> bool:
        """True if a kernel enforces what is written."""
        return self.standin is None or self.standin.real


def open_tree(choice: str, machine: Machine, state: Path, *, live: bool) -> ServedTree:
    """The tree that --cgroup-root names.

    Args:
        choice: "scratch", "auto" or a path.
        machine: the machine that is served.
        state: the state folder.
        live: the machine is this one, not a recorded one.

    Raises:
        SettingsError: a real hierarchy is asked for a recorded machine.
        HostError: the hierarchy cannot be used; the text says what to do.
    """
    if choice not in (SCRATCH, AUTO):
        if not live:
            raise SettingsError(
                "--cgroup-root", f"{choice} is of this machine, --root names another; leave one of them out"
            )
        if has_kubelet(choice):
            return ServedTree(Cgroups(choice), None, f"the kubelet's cgroups below {choice}")
        return _own(choice)
    if choice == AUTO and live:
        try:
            if not has_kubelet(MOUNT):  # a kubelet's pods are served only when they are named
                return _own(MOUNT)
        except HostError:
            pass  # not root, no cpuset controller: a scratch tree serves as well
    folder = state / "cgroup"
    standin = ScratchStandIn(folder, machine)
    return ServedTree(standin.cgroups, standin, f"a scratch tree in {folder}")


def _own(root: str) -> ServedTree:
    standin = RealStandIn(root)
    where = f"cgroup v{standin.cgroups.version} in {standin.cgroups.mounts.cpuset}/{OWN_FOLDER}"
    return ServedTree(standin.cgroups, standin, where)
