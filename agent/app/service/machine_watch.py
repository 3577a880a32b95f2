"""Listens for changes of this machine, and asks libudev and psutil what they see of it.

Used by `agent.app.service.followed_setup`, which has the machine read again when `seen`
has changed (`agent.app.setup`) and tell what is different; `second_opinion` by them at start and by `numalign
topology`. A recorded machine neither changes nor has a second opinion.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

from agent.errors import HostError
from agent.host import proc, udev
from agent.host.udev import MOST_EVENTS, Hotplug, Uevent
from agent.model.machine import Machine
from agent.node.fault_isolation import Isolated, sentence
from agent.observe.logs import LOG

QUIET = 0.1
"""Seconds without another event after which the machine is read: a card comes with all its functions, a node with all
its CPUs."""
LONGEST = 2.0
"""Seconds after which it is read though events go on."""
AGAIN = 300.0
"""Seconds after which it is read without any event: changed huge pages have none, and events can be missed."""
SHOWN = 8
"""Events that are named in one line of the log."""


class MachineWatch:
    """A thread that counts reasons to read the machine again.

    Args:
        root: the machine that is served; only None, this one, is watched.
        wake: called on the thread after each new reason.
        problem: called once when there are no events; the looks now and then go on.
        listen: opens the source of events.
        again: see AGAIN.

    Attributes:
        seen: changes when there is a reason to read the machine again.
    """

    def __init__(
        self, root: str | None, wake: Callable[[], None], problem: Callable[[str], None],
        *, listen: Callable[[], Hotplug] = Hotplug, again: float = AGAIN,
    ) -> None:  # fmt: skip
        self.seen = 0
        self._live = root is None
        self._wake = wake
        self._problem = problem
        self._listen = listen
        self._again = again
        self._hotplug: Hotplug | None = None
        self._end, self._ended = -1, -1
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        if not self._live:
            return
        try:
            self._hotplug = self._listen()
        except HostError as error:
            self._problem(f"{error}; this machine is read again every {self._again:.0f} s instead")
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._run, name="hot-plug", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._thread is None:
            return
        os.write(self._ended, b".")
        self._thread.join()
        self._thread = None
        os.close(self._end)
        os.close(self._ended)

    def _run(self) -> None:
        while True:
            sources = [self._end, *([self._hotplug.fileno()] if self._hotplug is not None else [])]
            ready, _, _ = select.select(sources, [], [], self._again)
            if self._end in ready:
                return
            if ready and self._hotplug is not None:
                with Isolated(self._deaf):
                    events = self._burst(self._hotplug)
                    if not events:
                        continue
                    LOG.info("hot-plug", extra={"facts": {"events": len(events), "what": _words(events)}})
            self.seen += 1
            self._wake()

    def _deaf(self, error: Exception) -> None:
        """Events that cannot be read would come at once again: this machine is looked at now and then instead."""
        self._hotplug = None
        self._problem(f"{sentence(error)}; this machine is read again every {self._again:.0f} s instead")

    def _burst(self, hotplug: Hotplug) -> list[Uevent]:
        """All events up to a pause; the end of the thread ends the wait too."""
        events: list[Uevent] = []
        until = time.monotonic() + LONGEST
        while time.monotonic() < until and len(events) < MOST_EVENTS:
            events += hotplug.drain()
            ready, _, _ = select.select([hotplug.fileno(), self._end], [], [], QUIET)
            if not ready or self._end in ready:
                break
        return events


def second_opinion(machine: Machine, root: str | None) -> tuple[str, ...]:
    """Return what libudev and psutil see differently on this machine, one sentence each; reported, never acted on.

    Args:
        machine: as it was read.
        root: where from; only None, this machine, can be asked about.
    """
    if root is not None:
        return ()
    try:
        devices = udev.cross_check(machine.devices)
    except HostError as error:
        devices = (f"PCI devices are not cross-checked: {error}",)
    return (*proc.cross_check(machine), *devices)


def _words(events: list[Uevent]) -> str:
    names = list(dict.fromkeys(f"{each.action} {each.path.rpartition('/')[2]}".strip() for each in events))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
