"""R1 to R7 of a nomination, each broken on purpose on a node of its own: what is there ten seconds later."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.cluster.api_proxy import SPEC
from tests.cluster.gate_live import LiveGate
from tests.cluster.gate_world import SPACE, gates, nominated
from tests.cluster.nodes import MERGE, STRATEGIC
from tests.cluster.objects import Object
from tests.patience import until

LATER = 10.0
"""Seconds."""
CASES = (
    "r1-foreign-gate", "r2-missing", "r2-unbound", "r2-later", "r3-never", "r4-taint", "r5-twin", "r5-foreign",
    "r6-refuses", "r7-not-ready", "r7-old",
)  # fmt: skip
BETWEEN = ("r2-later", "r3-never", "r4-taint")
"""Rules that are broken while the release is under way."""
TOLERATES: list[Object] = [{"operator": "Exists"}]
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@dataclass
class Broken:
    """What became of a case.

    Attributes:
        promised: nodes that nominations of its pod named, "" for a clearing, and those of its twin.
        left: pods of it that are nominated in the end.
        gated: its pod waits behind our gate.
        plain: where the plain pod runs.
    """

    promised: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    gated: bool = False
    plain: str = ""


def broken(gate: LiveGate) -> dict[str, Broken]:
    """Break all rules, wait LATER, and look."""
    for each in CASES:
        gate.nodes.add(each, old=600.0 if each == "r7-old" else 0.0, case=each)
    gate.nodes.fill("r6-refuses", 2, 2, nodeSelector={"case": "r6-refuses"})
    _claims(gate)
    gate.nodes.ready("r7-not-ready", ready=False)
    gate.nodes.agent_ready("r7-old", ready=False, since=time.time() - 600)
    _foreign(gate)
    gate.leads()
    with ExitStack() as stack:
        holds = [stack.enter_context(gate.proxy.holding(SPEC, each)) for each in BETWEEN]
        for each in CASES:
            gate.ask(each, 3 if each == "r6-refuses" else 4, **_of(each), **_extra(each))
        gate.ask("r5-twin-second", 4, **_of("r5-twin"))
        for hold in holds:
            hold.reached()
        _unclaim(gate)
        gate.nodes.taint("r3-never", "numalign.io/test")
        gate.nodes.taint("r4-taint", "numalign.io/test")
    began = time.monotonic()
    for each in CASES:
        gate.plain(f"{each}-plain", _room(each), tolerations=TOLERATES, **_of(each))
    time.sleep(max(0.0, began + LATER - time.monotonic()))
    return {each: _found(gate, each) for each in CASES}


def _of(case: str) -> Object:
    return {"nodeSelector": {"case": case}}


def _extra(case: str) -> Object:
    """What of a pod's specification breaks the rule."""
    if case == "r1-foreign-gate":
        return {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    if case.startswith("r2"):
        return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": case}}]}
    return {"priorityClassName": "never-preempts"} if case == "r3-never" else {}


def _room(case: str) -> int:
    """CPUs of the plain pod: those of the pod that broke the rule where that may leave them."""
    return {"r5-twin": 3, "r5-foreign": 2, "r6-refuses": 2, "r7-old": 3}.get(case, 4)


def _claims(gate: LiveGate) -> None:
    """A class that binds at once and makes nothing, a claim of it, and a claim that is bound."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "at-once"},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"}  # fmt: skip
    never = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "never-preempts"},
             "value": 0, "preemptionPolicy": "Never"}  # fmt: skip
    call = gate.cluster.call
    call("POST", CLASSES, kind)
    call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", never)
    both: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": "at-once"}
    wanted = {**both, "resources": {"requests": {"storage": "1Gi"}}}
    claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    call("POST", CLAIMS, {**claim, "metadata": {"name": "r2-unbound"}, "spec": wanted})
    notes = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    metadata = {"name": "r2-later", "annotations": notes}
    stored = call("POST", CLAIMS, {**claim, "metadata": metadata, "spec": {**wanted, "volumeName": "pv"}})
    of = {"namespace": SPACE, "name": "r2-later", "uid": stored["metadata"]["uid"]}
    spec = {**both, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/none"}, "claimRef": of}
    call("POST", VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec})
    for path in (f"{CLAIMS}/r2-later", f"{VOLUMES}/pv"):
        call("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, kind=MERGE)


def _unclaim(gate: LiveGate) -> None:
    """Take a claim away from a pod that is nominated already."""
    path = f"{CLAIMS}/r2-later"
    gate.cluster.call("DELETE", path)
    gate.cluster.call("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)
    until(lambda: gate.cluster.found(path) is None, "the claim to go")


def _foreign(gate: LiveGate) -> None:
    """A pod of another scheduler, nominated to a node by that."""
    gate.plain("r5-foreign-nominated", 5, schedulerName="other", **_of("r5-foreign"))
    path = f"/api/v1/namespaces/{SPACE}/pods/r5-foreign-nominated/status"
    gate.cluster.call("PATCH", path, {"status": {"nominatedNodeName": "r5-foreign"}}, kind=STRATEGIC)


def _found(gate: LiveGate, case: str) -> Broken:
    names = [case, "r5-twin-second"] if case == "r5-twin" else [case]
    bodies = [gate.pod(name) for name in names]
    plain = gate.node_of(f"{case}-plain")
    runs = bool(plain) and gate.nodes.holds(plain, f"{SPACE}/{case}-plain")
    return Broken(
        [node for name in names for node in gate.proxy.promised(name)],
        [each["metadata"]["name"] for each in bodies if nominated(each)],
        any("numalign.io/fit" in gates(each) for each in bodies), plain if runs else "",
    )  # fmt: skip
