"""Every fault that the lab makes: how, how it is undone, what is expected meanwhile and after. Its steps: `steps.py`.

ROWS are the faults that numalign promises to survive; each of FAULTS belongs to one. After every fault the same holds
(`Stage.agreed`, `Stage.unmoved`): no CPU in two exclusive sets, nobody outside the shared pool, no running container
moved, ledger = cgroups = annotations.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from agent.model.idset import CpuSet
from tests.lab import steps
from tests.lab.agreement import Look
from tests.lab.sampling import Sampler
from tests.lab.shapes import STANDARD
from tests.lab.stage import DisagreementError, Stage
from tests.lab.steps import Step
from tests.lab.sweeps import strayed

ROWS = {
    "api": "API server away",
    "killed": "agent killed at any point",
    "checkpoint": "checkpoint truncated, bit-flipped, of another machine, newer version, disk full",
    "disturbed": "runtime or kubelet restart, daemon-reload, someone else's cpuset write",
    "machine": "CPU or memory off/online, sizes changed by a reboot, NUMA ids with holes",
    "writers": "the kubelet's own static policy, or another writer of cpusets, is there",
    "malformed": "malformed pod, annotation, sysfs file, podresources or NRI message",
}
ELSEWHERE = {
    "NUMA ids with holes": "tests/replay",  # QEMU numbers nodes without holes; recorded machines have them
    "malformed sysfs file": "tests/unit",
    "malformed podresources or NRI message": "tests/nri",
}
"""Parts of a row that no guest can show, and where they are tested."""


@dataclass(frozen=True)
class Fault:
    """One of them, or two at once.

    Attributes:
        name: for test ids and reports.
        row: key of ROWS; "" for two.
        make, undo: the steps.
        says: what the agent must say of it (a regular expression for a line of its log), "" for nothing.
        agrees: all agree while it lasts, too; not where somebody else has just written.
        told: annotations follow while it lasts.
        offline: {cpu} is away meanwhile, and lost to its holder.
        foreign: somebody else writes cpusets: until they are repaired, who is where is none of numalign's doing.
        mixed: the soak makes it by chance; what takes minutes is made alone.
    """

    name: str
    row: str
    make: Step
    undo: Step = ""
    says: str = ""
    agrees: bool = True
    told: bool = True
    offline: bool = False
    foreign: bool = False
    mixed: bool = True


def pages(count: int) -> str:
    """So many huge pages on node 1, late: a line of shell."""
    node = "/sys/devices/system/node/node1"
    return f"echo {count} >{node}/hugepages/hugepages-2048kB/nr_hugepages; echo change >{node}/uevent"


FAULTS = (
    Fault("daemon-reload", "disturbed", "systemctl daemon-reload"),
    Fault("kubelet-restart", "disturbed", "systemctl restart kubelet"),
    Fault("containerd-restart", "disturbed", "systemctl restart containerd"),
    Fault("foreign-write", "disturbed", "echo 0-1 >{folder}/cpuset.cpus", says="repaired.*drift-foreign",
          foreign=True),
    Fault("foreign-write-wider", "disturbed",
          "echo 0-15 >/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/cpuset.cpus; "
          "echo 0-15 >{shared}/cpuset.cpus",
          # they leave all CPUs, too
          says="repaired.*kubepods-burstable.slice.*drift-(foreign|reset|emptied|undone)", foreign=True),
    Fault("agent-killed", "killed", Stage.killed),
    Fault("api-server-away", "api", steps.without_api, steps.api_back, told=False),
    Fault("huge-pages", "machine", pages(8), pages(0), says=r"pages of NUMA node 1 were \d+ and are 8"),
    Fault("disk-full", "checkpoint", steps.full, steps.emptied, says="cannot be saved: No space left"),
    Fault("disk-read-only", "checkpoint", steps.read_only, steps.replaced,
          says="cannot be saved: Read-only file system"),
    Fault("cpu-offline", "machine", "echo 0 >/sys/devices/system/cpu/cpu{cpu}/online",
          "echo 1 >/sys/devices/system/cpu/cpu{cpu}/online", says="CPUs {cpu} are offline", offline=True),
    Fault("checkpoint-truncated", "checkpoint", steps.damaged("truncate -s -9 checkpoint.json"),
          says="put aside as checkpoint.json.corrupt"),
    Fault("checkpoint-flipped", "checkpoint",
          steps.damaged("printf '\\377' | dd of=checkpoint.json bs=1 seek=300 conv=notrunc 2>/dev/null"),
          says="put aside as checkpoint.json.corrupt"),
    Fault("checkpoint-newer", "checkpoint",
          steps.damaged("sed -i '1s/\"numalign\":1/\"numalign\":9/' checkpoint.json"),
          says="put aside as checkpoint.json.corrupt"),
    Fault("checkpoint-of-another-machine", "checkpoint", steps.of_another_machine,
          says="put aside as checkpoint.json.corrupt"),
    Fault("malformed-annotations", "malformed", steps.malformed, "true", says="numalign.io/policy"),
    Fault("force-deleted", "killed", steps.forced, steps.forced_over),
    Fault("kubelet-static", "writers", steps.static, steps.not_static,
          says="observing only: (the kubelet writes cpusets itself|another program writes)",
          agrees=False, foreign=True, mixed=False),
    Fault("reboot-smaller", "machine", steps.booted(steps.SMALLER), steps.booted(STANDARD), mixed=False),
)  # fmt: skip
"""In the order in which they are tested. What takes the node away comes last; cpu-offline, which makes a pod anew,
comes after the state got a disk of its own: the boot must find that pod in the ledger."""


@dataclass(frozen=True)
class Outcome:
    """How a fault went.

    Attributes:
        made, agreed: seconds until it was made; from its end until all agreed.
        sweeps: how often the kernel was looked at meanwhile.
    """

    made: float
    agreed: float
    sweeps: int = 0


def suffer(stage: Stage, fault: Fault, sampler: Sampler | None = None) -> Outcome:
    """Make a fault, undo it, and check all that is promised. Raises PromiseError where it is not kept.

    Args:
        stage: the node.
        fault: one.
        sampler: that sweeps the node's kernel meanwhile: no container with CPUs of its own may be seen elsewhere.
    """
    before = stage.agreed()
    cpu = max(stage.held("stay-two", before))
    stage.places = {"folder": stage.folder("stay-two"), "shared": stage.folder("stay-shared"), "cpu": str(cpu)}
    stage.lost = CpuSet.of(cpu) if fault.offline else CpuSet()
    since, began = stage.now(), time.monotonic()
    try:
        try:
            steps.do(stage, fault.make)
            made = time.monotonic() - began
            if fault.says:
                stage.said(fault.says.format(**stage.places), since)
            if fault.agrees:
                stage.unmoved(before, stage.agreed(told=fault.told))
        except BaseException:  # a test's time limit and Ctrl-C, too: nobody shall meet the fault later
            with contextlib.suppress(Exception):  # what went wrong first is what is told
                steps.do(stage, fault.undo)
            raise
        finally:
            stage.blind = False
        steps.do(stage, fault.undo)
        began = time.monotonic()
        after = stage.agreed()
        took = time.monotonic() - began
        seen = sampler.seen() if sampler else None
        if seen and (found := [*strayed(seen, exclusive(before), lost=stage.lost)]):
            raise DisagreementError("\n".join([*found, *stage.words(20)]))
        stage.unmoved(before, after)
    finally:
        if fault.offline:
            stage.renew("stay-two")
        stage.lost = CpuSet()
    return Outcome(made, took, seen.count if seen else 0)


def exclusive(seen: Look) -> dict[str, CpuSet]:
    """Container id -> its CPUs, of all that run outside the shared pool."""
    assert seen.ledger is not None
    shared = seen.ledger.cpus.shared
    return {each.id: each.cpus for each in seen.containers if each.threads and not each.cpus & shared}
