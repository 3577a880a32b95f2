"""What a real kubelet does with a pod, and when: numalign's rules about what a pod may hold rest on it.

Each sequence writes its times down for the report. numalign's ledger is looked at all the while (the sampler keeps
every saved one): it holds nothing for a pod that the kubelet refuses, and gives back what an ended pod's cgroup held.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator

import pytest

from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.driving import PATIENCE
from tests.lab.pods import container, pod, resources
from tests.lab.report import record
from tests.lab.sampling import Sampler
from tests.lab.sweeps import PAUSE

TIMES = 3
"""How often each is done."""
FOLDER = """python3 - <<'END'
import glob, os, time
top = "/sys/fs/cgroup/kubepods.slice"
(folder,) = glob.glob(f"{{top}}/kubepods*-pod{uid}.slice") + glob.glob(f"{{top}}/*/kubepods*-pod{uid}.slice")
def populated():
    try:
        return "populated 1" in open(f"{{folder}}/cgroup.events").read()
    except OSError:
        return False
while populated():
    time.sleep(0.05)
began = time.monotonic()
while os.path.isdir(folder):
    time.sleep(0.05)
print(time.monotonic() - began)
END
"""
"""How many seconds a pod's cgroup stays when it holds no process any more, watched in the guest."""
ADMITTED, SETTLED = 60.0, 3.0
"""Seconds within which a kubelet takes a pod in; after which a look at a resize is no look at its beginning."""
LATE = 30.0
"""Seconds within which the CPUs of an ended pod are free, at most."""


@pytest.fixture
def node(alone: Lab) -> Iterator[Lab]:
    """The node that numalign pins on without pods, before and after."""
    alone.clear(alone.numalign)
    yield alone
    alone.clear(alone.numalign)


def told(seconds: list[float]) -> str:
    """Times of a report."""
    return f"{min(seconds):.2f} to {max(seconds):.2f} s, median {statistics.median(seconds):.2f} s"


def ledgers(sampler: Sampler) -> list[Ledger]:
    """Each that was saved while the sampler looked on."""
    found = (each.ledger for each in sampler.seen().spans)
    return [*{id(each): each for each in found if each is not None}.values()]


def freed(sampler: Sampler, uid: str) -> float | None:
    """Seconds from the end of a pod's last process to the ledger that has no CPU for it; None while one has."""
    began, empty, now = False, None, 0.0
    for span in sampler.seen().spans:
        if any(each.pod == uid and each.kind != PAUSE for each in span.sets.values()):
            began, empty = True, None
        elif began:
            empty = now if empty is None else empty
            if not own(span.ledger, uid):
                return now - empty
        now += span.seconds
    return None


def own(ledger: Ledger | None, uid: str) -> CpuSet:
    """What the books give a pod for itself."""
    return CpuSet.union(ledger.cpus.assigned.get(uid, {}).values()) if ledger else CpuSet()


def test_s13_the_cgroup_of_an_ended_pod_lives_on_for_a_while(node: Lab, sampler: Sampler) -> None:
    """Of a pod that ended by itself, and of one that is deleted: how long, and when its CPUs are free.

    The pod's object stays after the first: what frees its CPUs is the end of its processes, not that of the object,
    nor that of the cgroup.
    """
    lab, guest = node, node.numalign
    for kind, command in (("ended", ["/bin/sleep", "15"]), ("deleted", ["/bin/sleep", "600"])):
        lived, free = list[float](), list[float]()
        for number in range(TIMES):
            name = f"{kind}-{number}"
            body = pod(name, container(cpu="2", command=command), restartPolicy="Never")
            made = lab.create(body, guest, wait=True)
            uid = made["metadata"]["uid"]
            lab.wait_told(name)
            assert len(own(agent.ledger(guest), uid)) == 2
            if kind == "deleted":
                lab.delete(name, grace=0)
            lived.append(float(guest.run(FOLDER.format(uid=uid.replace("-", "_")))))
            deadline = time.monotonic() + LATE
            while (after := freed(sampler, uid)) is None and time.monotonic() < deadline:
                time.sleep(PATIENCE)
            assert after is not None, f"{name} still holds CPUs {own(agent.ledger(guest), uid)}"
            free.append(after)
            lab.delete(name)
        words = {"ended": "ended", "deleted": "was deleted"}[kind]
        record(f"kubelet: the empty cgroup of a pod that {words} lives", told(lived))
        record(f"numalign: its CPUs are free after the last process ended (pod {kind})", told(free))


def test_s13_a_pod_that_the_kubelet_refuses_never_holds_a_cpu(node: Lab, sampler: Sampler) -> None:
    """From spec.nodeName to OutOfcpu: no saved ledger has a CPU for it, though numalign has enough of them.

    A pod without CPUs of its own requests so many that the kubelet has no room for a second one.
    """
    lab, guest = node, node.numalign
    asked = resources("10", "16Mi", limits={"memory": "32Mi"})
    lab.create(pod("there", container(resources=asked)), guest, wait=True)
    waited, uids = list[float](), list[str]()
    for number in range(TIMES):
        began = time.monotonic()
        made = lab.create(pod(f"too-many-{number}", *(container(f"c{n}", cpu="4") for n in range(2))), guest)
        uids.append(made["metadata"]["uid"])
        refused = lab.wait_refused(made["metadata"]["name"])
        waited.append(time.monotonic() - began)
        assert refused["status"]["reason"] == "OutOfcpu", refused["status"]
    seen = ledgers(sampler)
    assert not [uid for uid in uids for each in seen if own(each, uid)]
    record("kubelet: from spec.nodeName to OutOfcpu", told(waited))
    record("ledgers saved meanwhile, none with a CPU for such a pod", len(seen))


def _status(body: Object) -> tuple[str, str, str]:
    """What the kubelet tells of a resize: CPUs allocated by the pod's status and its container's, and conditions."""
    status = body["status"]
    (each,) = status.get("containerStatuses") or [{}]
    resizing = [
        f"{one['type']}={one.get('reason') or one['status']}"
        for one in status.get("conditions", ())
        if "Resize" in one["type"]
    ]
    words = (status.get("allocatedResources", {}), each.get("allocatedResources", {}))
    of_pod, of_container = (json.dumps(one.get("cpu")) for one in words)
    return of_pod, of_container, ", ".join(resizing)


def _words(status: tuple[str, str, str]) -> str:
    of_pod, of_container, resizing = status
    return f"allocated {of_pod} (pod), {of_container} (container); {resizing or 'no condition'}"


def test_a_resize_before_the_first_container_starts(node: Lab, sampler: Sampler) -> None:
    """A pod that waits for a volume asks for more: what its status says until it runs, and what it holds in the end.

    It holds no CPU more than the kubelet says that it has allocated, or, while that says nothing, than it asks for.
    """
    lab, guest = node, node.numalign
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": "default"}}
    waiting = container(cpu="1", volumeMounts=[{"name": "late", "mountPath": "/late"}])
    made = lab.create(pod("resized", waiting, volumes=[{"name": "late", "secret": {"secretName": "late"}}]), guest)
    uid = made["metadata"]["uid"]
    where = "/api/v1/namespaces/default/pods/resized/resize"
    try:
        lab.wait_pod("resized", lambda found: found["status"].get("containerStatuses"), seconds=ADMITTED)
        lab.wait_told("resized")
        before = _status(lab.pod("resized"))
        began = time.monotonic()
        asked = {"spec": {"containers": [{"name": "c", "resources": resources("2")}]}}
        lab.plane.call("PATCH", where, asked, kind="application/strategic-merge-patch+json")
        steps: list[str] = [f"before: {_words(before)}"]
        last, created = before, False
        while True:
            body, now = lab.pod("resized"), time.monotonic() - began
            if (words := _status(body)) != last:
                steps.append(
                    f"{now:.1f} s: allocated {words[0]} (pod), {words[1]} (container); {words[2] or 'no word'}"
                )
                last = words
            if not created and now > SETTLED * 2:
                lab.plane.call("POST", "/api/v1/namespaces/default/secrets", secret)
                created = True
                steps.append(f"{now:.1f} s: its volume is there")
            (status,) = body["status"]["containerStatuses"]
            if ("running" in status["state"] and now > SETTLED * 4) or now > ADMITTED * 3:
                break
            time.sleep(PATIENCE)
    finally:
        lab.plane.found("/api/v1/namespaces/default/secrets/late", "DELETE")
    lab.wait_running("resized")
    lab.wait_enforced(guest, "resized")
    allocated = int(json.loads(last[1]) or 2)
    held = [len(own(each, uid)) for each in ledgers(sampler)]
    for line in steps:
        print(line)
    record("kubelet: a resize from 1 to 2 CPUs before the first container starts", "; ".join(steps))
    record("CPUs that such a pod held, ledger after ledger", " ".join(map(str, held)))
    assert held[-1] == allocated
    assert max(held) <= 2
