"""The memory policy of a process, as the first line of /proc/PID/numa_maps shows it. Called by `Cgroups.policy`.

The first line is of the program's text, which has no policy of its own: the kernel shows the process's there
(https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html). Each line costs the kernel a walk through the pages
of a mapping, so no line is read beyond the first. A process can hold its mappings, and with them each reader, for
ever (a page of its own FUSE): each read has a thread, which is waited for briefly.
"""

from __future__ import annotations

import errno
import os
import re
import threading

from agent.node.fault_isolation import Isolated

_MOST_HANGING = 4
"""Reads that have not returned, beyond which no other begins."""
_WITHIN = 0.25
"""Seconds that a read is waited for."""
_PIECE, _LONGEST = 64, 512
"""Bytes of one read, and of all: the kernel stops after the line with which a read is full."""
_POLICY = re.compile(
    r"[0-9a-f]{1,16} ((?:prefer \(many\)|weighted interleave|[a-z]+)(?:=[a-z|]+)?(?::[0-9,-]+)?)\s", re.ASCII
)


class PolicyReader:
    """Reads of policies.

    Args:
        proc: where processes are seen.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._hanging: dict[int, threading.Thread] = {}

    def read(self, pid: int) -> str:
        """Read a process's policy, like "interleave:0-1". Raises OSError: ENOENT where it is gone."""
        self._hanging = {number: each for number, each in self._hanging.items() if each.is_alive()}
        if pid in self._hanging or len(self._hanging) >= _MOST_HANGING:
            raise OSError(errno.ETIMEDOUT, "an earlier read has not returned")
        found: list[str] = []
        faults: list[Exception] = []

        def carry_out() -> None:
            with Isolated(faults.append):
                found.append(self._shown(pid))

        thread = threading.Thread(target=carry_out, name=f"policy {pid}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the limit of processes is reached: the next look tries again
            raise OSError(errno.EAGAIN, "no thread can be had") from error
        thread.join(_WITHIN)
        if found:
            return found[0]
        if faults:
            raise faults[0]
        self._hanging[pid] = thread
        raise OSError(errno.ETIMEDOUT, "the read has not returned")

    def _shown(self, pid: int) -> str:
        handle = os.open(f"{self._proc}/{pid}/numa_maps", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            data = part = os.read(handle, _PIECE)
            while part and b"\n" not in data and len(data) < _LONGEST:
                part = os.read(handle, _PIECE)
                data += part
        except ProcessLookupError as error:  # it ended after its file was opened
            raise OSError(errno.ENOENT, "it is gone") from error
        finally:
            os.close(handle)
        line = _POLICY.match(data.decode("ascii", "replace"))
        if line is None:
            raise OSError(errno.EBADMSG, "its first line has no policy" if data else "it has no mapping")
        return line[1]
