"""The small process per container: it runs where it was put, and ends with this program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.host.processes import Processes, read_allowed
from agent.model.idset import CpuSet
from tests import patience

KEY = ("uid", "app")


def test_a_process_runs_where_it_is_put_by_the_kernels_own_word() -> None:
    """Cpus_allowed_list says so; CPUs that this machine lacks are left out."""
    processes = Processes()
    cpu = min(os.sched_getaffinity(0))
    pid = processes.start(KEY)
    assert processes.start(KEY) == pid
    processes.confine(KEY, CpuSet.of(cpu, 5000))
    allowed = processes.allowed(KEY)
    assert allowed is not None
    assert allowed.cpus == CpuSet.of(cpu)
    assert allowed.mems
    processes.confine(KEY, CpuSet.of(5000))
    assert processes.allowed(KEY) == allowed
    processes.close()
    assert processes.allowed(KEY) is None


def test_one_container_or_all_of_a_pod_can_be_stopped() -> None:
    """Others run on; who is unknown has no process."""
    processes = Processes()
    pids = [processes.start(("a", "x")), processes.start(("a", "y")), processes.start(("b", "x"))]
    processes.stop("a", "x")
    assert [processes.pid(key) for key in (("a", "x"), ("a", "y"), ("b", "x"))] == [None, *pids[1:]]
    processes.stop("a")
    assert processes.pid(("b", "x")) == pids[2]
    processes.stop("nobody")
    processes.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_process_that_died_is_started_again() -> None:
    """Somebody killed it."""
    processes = Processes()
    first = processes.start(KEY)
    os.kill(first, 9)
    patience.until(lambda: processes.pid(KEY) is None, "its end")
    assert processes.start(KEY) != first
    processes.close()


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "os._exit(0)", "raise SystemExit"])
def test_none_is_left_however_this_program_ends(ending: str) -> None:
    """Even kill -9: the pipe that they wait on closes."""
    code = (
        "import os; from agent.host.processes import Processes; p = Processes();"
        f"print(p.start(('a', 'b')), p.start(('a', 'c')), flush=True); {ending}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pids = done.stdout.split()
    assert len(pids) == 2
    patience.until(lambda: not any(Path(f"/proc/{pid}/cmdline").is_file() and _is_cat(pid) for pid in pids))


def _is_cat(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"/bin/cat\0"
    except OSError:
        return False


def test_a_process_that_is_not_there_is_allowed_nothing() -> None:
    """None, no error: it may end at any time."""
    assert read_allowed(2**22 + 1) is None
