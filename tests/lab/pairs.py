"""Two faults at once on a real kubelet, runtime and kernel: a dozen pairs of the table in `tests/matrix`.

For each pair the same holds (`suffer`): while both last, no running container with CPUs of its own is seen elsewhere
and nobody else is seen on its CPUs (a sampler in the guest, `sampling.py`); once both have ended, ledger, cgroups,
threads and annotations agree, and nothing has moved. What numalign does not keep raises an assertion.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from agent.model.idset import CpuSet
from tests.lab import agent, procs, steps
from tests.lab.agreement import Look
from tests.lab.needs import PromiseError
from tests.lab.pods import pod
from tests.lab.sampling import Sampler
from tests.lab.stage import LOGS, DisagreementError, Stage
from tests.lab.sweeps import strayed
from tests.patience import until

SLOW, QUICK = 12.0, 0.4
"""Seconds for which the API server stands still, and between two such times."""
SKEW = 300
"""Seconds by which the node's clock is wrong."""
PAGES = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
STATE = steps.STATE


@dataclass(frozen=True)
class Pair:
    """Two faults.

    Attributes:
        first, second: as the table of pairs names them.
        make: makes both; returns when they are in force, and the agent has lived with them for a while.
        undo: ends both; called in any case.
        blind: the API server does not answer meanwhile: nothing is asked of it.
        offline: a CPU of stay-two is away meanwhile.
    """

    first: str
    second: str
    make: Callable[[Stage], None]
    undo: Callable[[Stage], None] = lambda _stage: None
    blind: bool = False
    offline: bool = False

    @property
    def name(self) -> str:
        return f"{self.first} + {self.second}".replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """How a pair went: seconds until all agreed after its end, and how often the kernel was looked at."""

    agreed: float
    sweeps: int


def suffer(stage: Stage, pair: Pair, sampler: Sampler) -> Outcome:
    """Make a pair of faults, end it, and check all that is promised. Raises PromiseError where it is not kept.

    Args:
        stage: the node.
        pair: of faults.
        sampler: that sweeps the node's kernel meanwhile; who else is on a container's CPUs is told at its end.
    """
    before = stage.agreed()
    pinned = exclusive(before)
    cpu = max(stage.held("stay-two", before))
    stage.lost = CpuSet.of(cpu) if pair.offline else CpuSet()
    stage.chosen = cpu
    try:
        try:
            pair.make(stage)
            if pair.blind:
                stage.unmoved(before, stage.agreed(told=False))
        finally:
            stage.blind = False
            pair.undo(stage)
        began = time.monotonic()
        after = stage.agreed()
        took = time.monotonic() - began
        seen = sampler.seen()
        found = [*strayed(seen, pinned, lost=stage.lost)]
        if found:
            raise DisagreementError("\n".join([*found, *stage.words(20)]))
        stage.unmoved(before, after)
    finally:
        if pair.offline:
            stage.renew("stay-two")
        stage.lost = CpuSet()
    return Outcome(took, seen.count)


def exclusive(seen: Look) -> dict[str, CpuSet]:
    """Container id -> its CPUs, of all that run outside the shared pool."""
    assert seen.ledger is not None
    shared = seen.ledger.cpus.shared
    return {each.id: each.cpus for each in seen.containers if each.threads and not each.cpus & shared}


# ---- what pairs are made of


def api_away(stage: Stage) -> None:
    """No API server."""
    stage.pods()
    stage.blind = True
    procs.stop("kube-apiserver", signal.SIGKILL)


def api_back(stage: Stage) -> None:
    """The API server is there again, and the node has spoken to it."""
    stage.blind = False
    procs.tell("kube-apiserver", signal.SIGCONT)
    if not procs.alive("kube-apiserver"):
        stage.lab.plane.start_part("kube-apiserver")
    stage.lab.plane.wait_ready()
    stage.node.wait_ready()


def api_hangs(stage: Stage) -> None:
    """The API server takes connections, and answers nothing."""
    stage.pods()
    stage.blind = True
    procs.tell("kube-apiserver", signal.SIGSTOP)


@contextmanager
def api_slow() -> Iterator[None]:
    """Each request takes up to twelve seconds: the API server stands still most of the time."""
    over = threading.Event()

    def pulse() -> None:
        while not over.wait(QUICK):
            procs.tell("kube-apiserver", signal.SIGSTOP)
            over.wait(SLOW)
            procs.tell("kube-apiserver", signal.SIGCONT)

    thread = threading.Thread(target=pulse, name="slow-api", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(SLOW + 5)
        procs.tell("kube-apiserver", signal.SIGCONT)


def oom_killed(stage: Stage) -> None:
    """The kernel ends the agent for its memory, and the next one has recovered."""
    pids = " ".join(map(str, stage.pids()))
    limit = (
        f"for p in {pids}; do g=$(sed -n 's/^0:://p' /proc/$p/cgroup); "
        "echo 1M >/sys/fs/cgroup$g/memory.max; done; "
        f"for p in {pids}; do while kill -0 $p 2>/dev/null; do sleep 0.1; done; done"
    )
    before = max(stage.containers_of_agent())
    stage.node.run(limit, seconds=300)
    stage.said("recovered", after=before)


def killed_and(then: str) -> Callable[[Stage], None]:
    """The agent dies, and a line of shell comes before the next one starts; which has recovered in the end."""
    return lambda stage: (stage.said("recovered", after=stage.kill(then)), None)[1]


def both(*parts: Callable[[Stage], object]) -> Callable[[Stage], None]:
    """One after the other."""

    def make(stage: Stage) -> None:
        for part in parts:
            part(stage)

    return make


def all_of(*parts: Callable[[Stage], object]) -> Callable[[Stage], None]:
    """Each of them, whatever the others raise; in reverse order of how they stand."""

    def undo(stage: Stage) -> None:
        with ExitStack() as stack:
            for part in parts:
                stack.callback(part, stage)

    return undo


def shell(line: str) -> Callable[[Stage], None]:
    """A line of shell in the guest; {cpu} is one of stay-two's CPUs."""
    return lambda stage: (stage.node.run(line.format(cpu=stage.chosen), seconds=300), None)[1]


def a_while(seconds: float) -> Callable[[Stage], None]:
    """Let the agent live with it: two of its reconciliations, in an emulated machine."""
    return lambda _stage: time.sleep(seconds)


def slow_start(stage: Stage) -> None:
    """The checkpoint is lost, and each request of the start takes twelve seconds."""
    stage.pods()
    with api_slow():
        stage.said("recovered", after=stage.kill(f"rm -f {STATE}/checkpoint.json*"))
        time.sleep(20)


def resized_while_full(stage: Stage) -> None:
    """A pod with two CPUs is to have three while nothing can be saved."""
    stage.lab.create(pod("grows", cpu="2", memory="16Mi"), stage.node, wait=True)
    stage.agreed()
    steps.small_disk(stage)
    stage.node.run(f"dd if=/dev/zero of={STATE}/filler bs=1k 2>/dev/null; true")
    ask = {
        "spec": {"containers": [{"name": "c", "resources": {each: {"cpu": "3"} for each in ("requests", "limits")}}]}
    }
    path = "/api/v1/namespaces/default/pods/grows/resize"
    stage.lab.plane.call("PATCH", path, ask, kind="application/strategic-merge-patch+json")
    stage.lab.wait_pod("grows", _has_three)
    time.sleep(15)


def _has_three(body: dict[str, object]) -> bool:
    status = body["status"]
    assert isinstance(status, dict)
    found = status.get("containerStatuses", [])
    return bool(found) and found[0].get("resources", {}).get("requests", {}).get("cpu") == "3"


def resize_followed(stage: Stage) -> None:
    """There is room again: the pod holds three CPUs without a restart of anything, and is deleted."""
    stage.node.run(f"rm -f {STATE}/filler")
    until(
        lambda: len(stage.held("grows", stage.agreed())) == 3,
        lambda: "three CPUs of grows\n" + "\n".join(stage.words(20)), within=120, pause=1, fault=DisagreementError,
    )  # fmt: skip
    stage.lab.delete("grows")


def forced_while_read_only(stage: Stage) -> None:
    """A pod leaves the API with its processes alive, and nothing can be saved: its CPUs are given to nobody."""
    stage.lab.create(pod("forced", cpu="2", memory="16Mi"), stage.node, wait=True)
    before = stage.held("forced", stage.agreed())
    steps.small_disk(stage)
    stage.node.run(f"name=$(basename $(findmnt -n -o SOURCE {STATE})); echo lab >/sys/fs/ext4/$name/trigger_fs_error")
    stage.node.run("systemctl stop kubelet")
    stage.lab.delete("forced", grace=0)
    stage.lab.create(pod("next", cpu="2", memory="16Mi"), stage.node)
    time.sleep(30)
    after = stage.held("forced", stage.look())
    if after != before:
        raise DisagreementError(f"forced held CPUs {before}, and {after} while its processes live on")


def forced_over(stage: Stage) -> None:
    """The disk is replaced and the kubelet is back."""
    stage.node.run("systemctl start kubelet")
    stage.node.wait_ready()
    steps.small_disk(stage)
    stage.lab.delete("next")


def garbage(stage: Stage) -> None:
    """Pods whose annotations are made to do harm."""
    ones = {"numalign.io/devices": "x=" + "1" * 6000, "numalign.io/policy": "\u0001" * 30000}
    many = {f"numalign.io/unknown-{number}": "x" for number in range(2000)}
    for name, notes in (("garbage-one", ones), ("garbage-two", many)):
        stage.lab.create(pod(name, cpu="1", memory="16Mi", annotations=notes), stage.node)


def garbage_gone(stage: Stage) -> None:
    """They are deleted."""
    for name in ("garbage-one", "garbage-two"):
        stage.lab.delete(name)


def clock(seconds: int) -> Callable[[Stage], None]:
    """The node's clock is wrong by so many seconds; 0 puts it right."""
    return lambda stage: (stage.node.run(f"date -s @{time.time() + seconds:.2f}"), None)[1]


def clock_right(stage: Stage) -> None:
    """The clock is right again, and the agent's pod a new one.

    The kubelet orders a pod's containers by when they began. One that began while the clock was behind is older to it
    than the one before, so that neither numbers nor logs tell which is the newest.
    """
    clock(0)(stage)
    agent.restart(stage.node)
    agent.wait_ready(stage.node)
    until(
        lambda: len(stage.node.run(f"ls -d {LOGS}").split()) <= 1, "the end of the logs of the agent's pod before",
        within=agent.READY, pause=1, fault=PromiseError,
    )  # fmt: skip


def older(stage: Stage) -> None:
    """The checkpoint loses what versions before this one did not save, and the runtime is started anew."""
    steps.as_older(stage)
    stage.node.run("systemctl restart containerd", seconds=300)
    time.sleep(20)


PAIRS = (
    Pair("agent killed", "API server away", both(api_away, killed_and("true"), a_while(15)), api_back, blind=True),
    Pair("agent OOM-killed", "API server silent", both(api_hangs, oom_killed, a_while(15)), api_back, blind=True),
    Pair("checkpoint lost", "API server away", both(
        api_away, killed_and(f"rm -f {STATE}/checkpoint.json*"), a_while(15)
    ), api_back),
    Pair("checkpoint lost", "API server slow", slow_start, api_back),
    Pair("checkpoint of an older version", "NRI away", older),
    Pair("disk full", "resize in flight", resized_while_full, resize_followed),
    Pair("disk read-only", "pod force-deleted", forced_while_read_only, forced_over),
    Pair("containerd restarted", "API server away", both(
        api_away, shell("systemctl restart containerd"), a_while(20)
    ), api_back, blind=True),
    Pair("agent killed", "kubelet restarted", both(
        shell("systemctl restart kubelet"), killed_and("true"), lambda stage: stage.node.wait_ready()
    )),
    Pair("daemon-reload", "API server away", both(
        api_away, killed_and("systemctl daemon-reload"), shell("systemctl daemon-reload"), a_while(15)
    ), api_back, blind=True),
    Pair("CPU offline", "API server away", both(
        api_away, shell("echo 0 >/sys/devices/system/cpu/cpu{cpu}/online"), a_while(15)
    ), all_of(api_back, shell("echo 1 >/sys/devices/system/cpu/cpu{cpu}/online")), offline=True),
    Pair("huge pages allocated late", "API server silent", both(
        api_hangs, shell(f"echo 8 >{PAGES}; echo change >/sys/devices/system/node/node1/uevent"), a_while(20)
    ), all_of(api_back, shell(f"echo 0 >{PAGES}; echo change >/sys/devices/system/node/node1/uevent")), blind=True),
    Pair("clock 5 min behind", "pod with garbage annotations", both(
        clock(-SKEW), garbage, killed_and("true"), a_while(15)
    ), all_of(garbage_gone, clock_right)),
    Pair("clock 5 min ahead", "API server slow", both(clock(SKEW), slow_start), all_of(api_back, clock_right)),
)  # fmt: skip
"""Fourteen: what the lab takes about a quarter of an hour for."""
