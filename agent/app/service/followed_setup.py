"""Settings and machine as they are in force: read at the start, and again when the file, the machine or the Node did.

Wrong settings are reported once, and the old ones stay (`agent.app.setup`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.app import setup
from agent.app.service.machine_watch import MachineWatch
from agent.app.setup import ProblemReporter, Setup
from agent.app.statedir.node_allocatable import NodeAllocatable


class FollowedSetup:
    """Reads them; `follow` is the loop's.

    Args:
        config: the configuration file, None for the defaults.
        root: the machine, None for this one.
        state: the state folder, where settings in force are kept; None where nothing is kept of them.
        hotplug: counts reasons to read the machine again.
        allocatable: what the kubelet keeps from pods, by the Node; None where there is no Node.

    Attributes:
        now: in force.
        root: as given.

    Raises:
        SettingsError: the file is wrong, and no earlier one can be served.
        HostError: the machine cannot be read.
    """

    def __init__(
        self, config: Path | None, root: str | None, state: Path | None, hotplug: MachineWatch,
        allocatable: Callable[[], NodeAllocatable | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.root = root
        self._config = config
        self._state = state
        self._hotplug = hotplug
        self._allocatable = allocatable
        self._behind = False
        self._seen = self._fingerprints()
        self._kept = allocatable()
        if state is None:
            self.now = setup.read_setup(config, root, self._kept)
        else:
            self.now = setup.begin(config, root, state, self._kept)
        self._remember()

    def again(self) -> None:
        """What changed and could not be read is tried again with the next `follow`."""
        if self._behind:
            self._seen = ()

    def follow(self, told: ProblemReporter) -> Setup | None:
        """Read again what changed; what was in force before, None where that is what is in force.

        Raises:
            SettingsError, HostError: what is there now cannot be served; the clock tries it again.
        """
        seen, kept = self._fingerprints(), self._allocatable()
        if (seen, kept) == (self._seen, self._kept):
            return None
        self._seen = seen
        self._kept = kept
        self._behind = True
        before = self.now
        self.now = now = setup.again(self._config, self.root, before, told, kept=kept)
        self._remember()
        self._behind = False
        same = (before.settings, before.machine.digest, before.node.rules)
        return None if same == (now.settings, now.machine.digest, now.node.rules) else before

    def _remember(self) -> None:
        if self._state is not None:
            setup.remember(self.now, self._state)

    def _fingerprints(self) -> tuple[object, ...]:
        return setup.config_print(self._config), setup.machine_print(self.root), self._hotplug.seen
