"""The last repairs of cgroups that another program had written, and the last faults. A Reporter.

Called under the engine's lock, so that nothing here waits: two bounded lists, which the page reads as tuples.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agent.core.cgroups.enforced import Unenforced
from agent.core.request.annotations import PodSettings
from agent.model.cgroup import VANISHED, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod

MOST = 50
"""Of each kind."""
DRIFT = "drift-"
"""What causes of repairs begin with."""


@dataclass(frozen=True, slots=True)
class RecentRepair:
    """One file that differed and was written again.

    Attributes:
        at: seconds since the epoch.
        path, file, cause: of the write.
        found, wanted: the text that was there, and the one written.
        error: the kernel's error where that failed, else "".
    """

    at: float
    path: str
    file: str
    cause: str
    found: str
    wanted: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that no pod has caused."""

    at: float
    what: str
    text: str


class Recent:
    """The last MOST repairs and faults.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._repairs: deque[RecentRepair] = deque(maxlen=MOST)
        self._faults: deque[Fault] = deque(maxlen=MOST)

    @property
    def repairs(self) -> tuple[RecentRepair, ...]:
        """Oldest first."""
        return tuple(self._repairs.copy())  # a copy, in one step: a deque that grows cannot be gone through

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Oldest first."""
        return tuple(self._faults.copy())

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """See Reporter; the snapshot has it."""

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """See Reporter; the snapshot has it."""

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> None:
        """See Reporter; the snapshot has it."""

    def released(self, uid: str) -> None:
        """See Reporter; the snapshot has it."""

    def written(self, results: tuple[Written, ...]) -> None:
        """See Reporter."""
        now = self._clock()
        for each in results:
            write = each.write
            if write.cause.value.startswith(DRIFT) and each.error != VANISHED:
                self._repairs.append(
                    RecentRepair(now, write.path, write.file, write.cause.value, write.old, write.value, each.error)
                )

    def problem(self, what: str, text: str) -> None:
        """See Reporter."""
        self._faults.append(Fault(self._clock(), what, text))
