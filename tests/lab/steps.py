"""The steps of faults: how they are made and undone. The tables are `faults.py` and `pairs.py`.

A step is a line of shell for the guest, with the words of `Stage.places` in braces, or a function of the stage.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent import __version__
from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet
from agent.model.ledger import PodRecord
from agent.model.pod import Container, Pod, Qos
from tests.lab import procs
from tests.lab.needs import LabError
from tests.lab.places import RUN
from tests.lab.pods import pod
from tests.lab.shapes import Machine, _even
from tests.lab.stage import DisagreementError, Stage
from tests.patience import until

Step = str | Callable[[Stage], object]
STATE = "/var/lib/numalign"
KUBELET_STATE = "/var/lib/kubelet/cpu_manager_state"
SMALLER = _even("smaller", "sockets=2,dies=2,cores=2,threads=2", cpus=16, sizes=(1024, 640, 768, 512))
"""The standard machine with less memory, and of another size on each node."""


def do(stage: Stage, step: Step) -> None:
    """Take a step."""
    if callable(step):
        step(stage)
    elif step:
        stage.node.run(step.format(**stage.places), seconds=300)


def both(*steps: Step) -> Callable[[Stage], None]:
    """One after the other."""

    def make(stage: Stage) -> None:
        for each in steps:
            do(stage, each)

    return make


def api_away(stage: Stage) -> None:
    """No API server."""
    stage.pods()
    stage.blind = True
    procs.stop("kube-apiserver", signal.SIGKILL)


def without_api(stage: Stage) -> None:
    """No API server; then a pinned container ends, and the agent is killed: both come back from the ledger alone."""
    folder = stage.folder("stay-one")
    api_away(stage)
    stage.node.run(f"kill -KILL $(head -n 1 {folder}/cgroup.procs)")
    stage.killed()


def api_back(stage: Stage) -> None:
    """The API server is there again, and the node has spoken to it."""
    stage.blind = False
    procs.tell("kube-apiserver", signal.SIGCONT)
    if not procs.alive("kube-apiserver"):
        stage.lab.plane.start_part("kube-apiserver")
    stage.lab.plane.wait_ready()
    stage.node.wait_ready()


def small_disk(stage: Stage) -> None:
    """The state folder on a file system of its own, of 4 MB, from now on, with all that is in it."""
    stage.node.run(
        "modprobe loop; rm -f /var/state.img.old; [ -e /var/state.img ] && mv /var/state.img /var/state.img.old; "
        "truncate -s 4M /var/state.img && mkfs.ext4 -q -m 0 /var/state.img && mkdir -p /mnt/state && "
        "mount -o loop,errors=remount-ro /var/state.img /mnt/state && "
        f"tar -C {STATE} --exclude=./filler -cf - . | tar -C /mnt/state -xf - && umount /mnt/state && "
        f"{{ umount -l {STATE} 2>/dev/null || true; }} && mount -o loop,errors=remount-ro /var/state.img {STATE}"
    )
    stage.killed()  # its container is made anew, on what is mounted now


def own_disk(stage: Stage) -> None:
    """The state folder is on the node's own disk again, with all that is in it.

    No boot mounts the small one: the agent would find what was saved before there was one, and place every pod anew
    that came since.
    """
    if _apart(stage):
        stage.node.run(
            f"tar -C {STATE} --exclude=./filler -cf /root/state.tar . && umount -l {STATE} && rm -rf {STATE}/* && "
            f"tar -C {STATE} -xf /root/state.tar"
        )


def _apart(stage: Stage) -> bool:
    """Whether the state folder is on the small disk."""
    return STATE in stage.node.run("cat /proc/mounts")


FILL = f"dd if=/dev/zero of={STATE}/filler bs=1k 2>/dev/null; true"


def full(stage: Stage) -> None:
    """Not a byte is left on the state's disk, and a pod comes."""
    if not _apart(stage):
        small_disk(stage)
    stage.node.run(FILL)
    refused(stage, "late-full")


def broken_disk(stage: Stage) -> None:
    """The state's file system has found an error, and is read-only from now on."""
    small_disk(stage)
    stage.node.run(
        f"name=$(basename $(findmnt -n -o SOURCE {STATE})); echo lab >/sys/fs/ext4/$name/trigger_fs_error; "
        f"touch {STATE}/x 2>/dev/null && exit 1 || true"
    )


def read_only(stage: Stage) -> None:
    """The state's disk breaks, and a pod comes."""
    broken_disk(stage)
    refused(stage, "late-read-only")


def refused(stage: Stage, name: str) -> None:
    """A pod that comes while nothing can be saved gets nothing, and is told so."""
    stage.lab.create(pod(name, cpu="1", memory="16Mi"), stage.node)
    told = stage.lab.wait_told(name)
    carried = told["metadata"]["annotations"]
    if "nothing new is granted" not in carried["numalign.io/assignment"] or "numalign.io/cpus" in carried:
        raise DisagreementError(f"{name} came while nothing can be saved, and carries {carried}")


def emptied(stage: Stage) -> None:
    """There is room again."""
    stage.node.run(f"rm {STATE}/filler")
    stage.lab.delete("late-full")


def replaced(stage: Stage) -> None:
    """The broken file system is replaced by a good copy."""
    small_disk(stage)
    stage.lab.delete("late-read-only")


def damaged(how: str) -> Callable[[Stage], None]:
    """The agent dies, and the checkpoint is changed by a line of shell before the next one reads it."""

    def make(stage: Stage) -> None:
        aside = set(stage.look().aside)
        killed = stage.kill(f"cd {STATE} && {how}")
        stage.said("recovered", after=killed)
        if not set(stage.look().aside) - aside:
            words = stage.words(20, after=killed)
            raise DisagreementError(f"the checkpoint was not put aside; the agent said\n{words}")

    return make


def of_another_machine(stage: Stage) -> None:
    """A whole checkpoint of a machine with other CPUs, whose pod, a stranger, holds what others hold here."""
    seen = stage.look()
    assert seen.ledger is not None
    stranger = Pod("00000000-0000-4000-8000-000000000001", "stranger", "default", (Container("c"),), Qos.GUARANTEED)
    cpus = replace(
        seen.ledger.cpus, shared=CpuSet.parse("0-1,40-63"),
        assigned={stranger.uid: {"c": CpuSet.parse("2-15,32-39")}},
    )  # fmt: skip
    memory = replace(seen.ledger.memory, nodes=(), blocks={}, pools={})
    ledger = replace(
        seen.ledger, machine="another", cpus=cpus, memory=memory,
        pods={stranger.uid: PodRecord(stranger, "single-numa-node", "container")},
    )  # fmt: skip
    file = RUN / "another.json"
    Checkpoint(file, by=__version__, boot="another").save(ledger)
    stage.node.put("/root/another.json", file.read_bytes())
    stage.killed(f"cp /root/another.json {STATE}/checkpoint.json")


OLDER = f"""import hashlib, json
path = "{STATE}/checkpoint.json"
body = json.loads(open(path).read().splitlines()[1])
body["extra"] = {{"listed": True}}
body["by"] = "0.1.0"
line = json.dumps(body, separators=(",", ":")).encode() + b"\\n"
head = {{"numalign": 1, "sha256": hashlib.sha256(line).hexdigest(), "size": len(line)}}
open(path, "wb").write(json.dumps(head).encode() + b"\\n" + line)
"""
"""Runs in the guest: takes from the checkpoint what version 0.1.0 did not save with a ledger."""


def as_older(stage: Stage) -> None:
    """The agent dies, and the next one finds a checkpoint as version 0.1.0 wrote it."""
    stage.node.put("/root/older.py", OLDER)
    stage.killed("python3 -I /root/older.py")


def static(stage: Stage) -> None:
    """The kubelet writes cpusets itself; the agent must notice, stop, and say who it is (safety.md S10)."""
    since = stage.now()
    stage.node.run(f"systemctl stop kubelet; rm -f {KUBELET_STATE}")
    stage.node.configure_kubelet({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,1"})
    stage.node.wait_ready()
    stage.said("observing only", since)


def not_static(stage: Stage) -> None:
    """The kubelet writes none again; the agent, started anew, enforces."""
    stage.node.run(f"systemctl stop kubelet; rm -f {KUBELET_STATE}")
    stage.node.configure_kubelet(stage.node.plan.kubelet)
    stage.node.wait_ready()
    stage.killed()


def malformed(stage: Stage) -> None:
    """Annotations that mean nothing: the pod runs by the node's own settings."""
    wrong = {"numalign.io/policy": "closest", "numalign.io/cpu-options": "{", "numalign.io/scope": ""}
    stage.lab.create(pod("malformed", cpu="1", memory="16Mi", annotations=wrong), stage.node, wait=True)


def forced(stage: Stage) -> None:
    """A pod leaves the API while its processes live on, for the kubelet is down; its CPUs stay its own (S13)."""
    stage.lab.create(pod("forced", cpu="2", memory="16Mi"), stage.node, wait=True)
    before = stage.agreed()
    stage.node.run("systemctl stop kubelet")
    stage.lab.delete("forced", grace=0)
    stage.lab.create(pod("next", cpu="2", memory="16Mi"), stage.node)
    stage.lab.wait_pod("next", lambda body: "numalign.io/cpus" in body["metadata"].get("annotations", {}))
    after = stage.agreed()
    if stage.held("forced", after) != stage.held("forced", before):
        raise DisagreementError("the CPUs of a pod whose processes live on were given back")


def forced_over(stage: Stage) -> None:
    """The kubelet is back, and ends what is not in the API."""
    stage.node.run("systemctl start kubelet")
    stage.node.wait_ready()
    stage.lab.delete("next")


def booted(machine: Machine) -> Callable[[Stage], None]:
    """The node's power is cut, and it comes back as another machine."""

    def make(stage: Stage) -> None:
        node = stage.node
        own_disk(stage)
        node.run("sync")
        node.guest.off()
        node.guest.power_on(machine)
        boot = node.run("cat /proc/sys/kernel/random/boot_id").strip()
        path = f"/api/v1/nodes/{node.name}"
        until(
            lambda: node.plane.call("GET", path)["status"]["nodeInfo"]["bootID"] == boot,
            lambda: f"{node.name} to join again: {node.journal('kubelet', 20)}",
            within=240, pause=0.5, fault=LabError,
        )  # fmt: skip
        node.wait_ready()
        stage.said("recovered", "", 240)
        for name in ("stay-one", "stay-two"):
            stage.lab.wait_pod(name, _again)

    return make


def _again(body: dict[str, Any]) -> bool:
    each = body["status"].get("containerStatuses", [])
    return bool(each) and all("running" in one["state"] and one["restartCount"] > 0 for one in each)
