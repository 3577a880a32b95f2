"""Two faults at once on a real kubelet, runtime and kernel: a dozen pairs of the table in `tests/matrix`.

For each pair the same holds (`faults.suffer` with a sampler, `sampling.py`): while both last, no running container
with CPUs of its own is seen elsewhere and nobody else is seen on its CPUs; once both have ended, ledger, cgroups,
threads and annotations agree, and nothing has moved. What numalign does not keep raises an assertion.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tests.lab import agent, procs, steps
from tests.lab.faults import Fault, pages
from tests.lab.needs import PromiseError
from tests.lab.pods import pod
from tests.lab.stage import LOGS, DisagreementError, Stage
from tests.lab.steps import STATE, Step, api_away, api_back, both
from tests.patience import until

SLOW, QUICK = 12.0, 0.4
"""Seconds for which the API server stands still, and between two such times."""
SKEW = 300
"""Seconds by which the node's clock is wrong."""
LOST = f"rm -f {STATE}/checkpoint.json*"


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
    return lambda stage: stage.killed(then)


def all_of(*parts: Step) -> Callable[[Stage], None]:
    """Each of them, whatever the others raise; in reverse order of how they stand."""

    def undo(stage: Stage) -> None:
        with ExitStack() as stack:
            for part in parts:
                stack.callback(steps.do, stage, part)

    return undo


def a_while(seconds: float) -> Callable[[Stage], None]:
    """Let the agent live with it: two of its reconciliations, in an emulated machine."""
    return lambda _stage: time.sleep(seconds)


def slow_start(stage: Stage) -> None:
    """The checkpoint is lost, and each request of the start takes twelve seconds."""
    stage.pods()
    with api_slow():
        stage.killed(LOST)
        time.sleep(20)


def resized_while_full(stage: Stage) -> None:
    """A pod with two CPUs is to have three while nothing can be saved."""
    stage.lab.create(pod("grows", cpu="2", memory="16Mi"), stage.node, wait=True)
    stage.agreed()
    steps.small_disk(stage)
    stage.node.run(steps.FILL)
    three = {each: {"cpu": "3"} for each in ("requests", "limits")}
    ask = {"spec": {"containers": [{"name": "c", "resources": three}]}}
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
    steps.broken_disk(stage)
    stage.node.run("systemctl stop kubelet")
    stage.lab.delete("forced", grace=0)
    stage.lab.create(pod("next", cpu="2", memory="16Mi"), stage.node)
    time.sleep(30)
    after = stage.held("forced", stage.look())
    if after != before:
        raise DisagreementError(f"forced held CPUs {before}, and {after} while its processes live on")


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


def pair(names: str, make: Step, undo: Step = "", *, blind: bool = False, offline: bool = False) -> Fault:
    """Two faults.

    Args:
        names: as the table of pairs has them.
        make: makes both; returns when they are in force, and the agent has lived with them for a while.
        undo: ends both; called in any case.
        blind: the API server does not answer meanwhile: all agree but for annotations.
        offline: a CPU of stay-two is away meanwhile.
    """
    return Fault(names.replace(" ", "-"), "", make, undo, agrees=blind, told=False, offline=offline)


PAIRS = (
    pair("agent killed + API server away", both(api_away, killed_and("true"), a_while(15)), api_back, blind=True),
    pair("agent OOM-killed + API server silent", both(api_hangs, oom_killed, a_while(15)), api_back, blind=True),
    pair("checkpoint lost + API server away", both(api_away, killed_and(LOST), a_while(15)), api_back),
    pair("checkpoint lost + API server slow", slow_start, api_back),
    pair("checkpoint of an older version + NRI away", both(
        steps.as_older, "systemctl restart containerd", a_while(20)
    )),
    pair("disk full + resize in flight", resized_while_full, resize_followed),
    pair("disk read-only + pod force-deleted", forced_while_read_only, both(
        "systemctl start kubelet", lambda stage: stage.node.wait_ready(), steps.small_disk,
        lambda stage: stage.lab.delete("next"),
    )),
    pair("containerd restarted + API server away", both(
        api_away, "systemctl restart containerd", a_while(20)
    ), api_back, blind=True),
    pair("agent killed + kubelet restarted", both(
        "systemctl restart kubelet", killed_and("true"), lambda stage: stage.node.wait_ready()
    )),
    pair("daemon-reload + API server away", both(
        api_away, killed_and("systemctl daemon-reload"), "systemctl daemon-reload", a_while(15)
    ), api_back, blind=True),
    pair("CPU offline + API server away", both(
        api_away, "echo 0 >/sys/devices/system/cpu/cpu{cpu}/online", a_while(15)
    ), all_of(api_back, "echo 1 >/sys/devices/system/cpu/cpu{cpu}/online"), offline=True),
    pair("huge pages allocated late + API server silent", both(
        api_hangs, pages(8), a_while(20)
    ), all_of(api_back, pages(0)), blind=True),
    pair("clock 5 min behind + pod with garbage annotations", both(
        clock(-SKEW), garbage, killed_and("true"), a_while(15)
    ), all_of(garbage_gone, clock_right)),
    pair("clock 5 min ahead + API server slow", both(clock(SKEW), slow_start), all_of(api_back, clock_right)),
)  # fmt: skip
"""Fourteen: what the lab takes about a quarter of an hour for."""
