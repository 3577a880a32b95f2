"""Keeps guests from standing still.

With a thread per emulated processor QEMU now and then loses a timer on a busy machine; the guest then waits for ever
(its console tells of RCU stalls). Stopping all processors for a moment and letting them go on makes them look again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from tests.lab.guest import Guest
from tests.lab.needs import LabError

EVERY, SILENT = 20.0, 45.0
"""Seconds between questions; seconds without an answer after which a guest is nudged."""


class Watch:
    """Asks guests whether they are there, on a thread of its own.

    Args:
        guests: asked for anew each time.
        tell: told of each nudge.
    """

    def __init__(self, guests: Callable[[], Iterable[Guest]], tell: Callable[[str], None]) -> None:
        self._guests, self._tell = guests, tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-watch", daemon=True)
        self.nudges = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            for guest in tuple(self._guests()):
                if guest.running and not guest.resting and not self._answers(guest) and not guest.resting:
                    with contextlib.suppress(OSError, LabError):  # it is going down: the next look tells
                        guest.nudge()
                        self.nudges += 1
                        self._tell(f"{guest.name} did not answer for {SILENT:.0f} s: its processors were nudged")

    def _answers(self, guest: Guest) -> bool:
        try:
            return guest.execute("true", seconds=SILENT - 30)[0] == 0
        except (OSError, LabError):
            return False
