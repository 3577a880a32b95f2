"""deploy/docs/why.md has every sentence with which a pod is refused, waits, or runs otherwise than it asked.

The places of the code that can refuse are found, too, and which of them the cases reach: no refusal is forgotten.

`CASES` are functions that make a refusal or a wait by the product's own code and give the sentence, as the pod's
condition and the Event have it.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest

from agent.core.admission.pod import _wrapped
from agent.core.admission.resize import resized
from agent.core.cpus.provider import CpuManager
from agent.core.devices.books import UNTOLD
from agent.core.devices.kubelet import Offered
from agent.core.memory.provider import MemoryManager
from agent.errors import SysfsMalformedError
from agent.model.devices import DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import NodeSet
from agent.model.outcome import Reason, Refusal, Refused
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Compatibility, Rules
from agent.node.deciding import ASIDE
from agent.node.tracked_pod import Switches
from tests.docs import pages
from tests.docs.pages import ROOT
from tests.flow.world import MemoryStore, World
from tests.unit.devices_cases import GPU, Rack, asking, gpus
from tests.unit.memory_cases import ANYWHERE, BOTH, GIB, KUBELET, MIB, Desk, machine, nodes
from tests.unit.memory_cases import node as numa
from tests.world.manifests import container as limits
from tests.world.manifests import manifest
from tests.world.nodes import managers_of
from tests.world.pods import APP, INIT, SIDECAR, container, pod

Case = Callable[[], str]
CASES: dict[str, Case] = {}
TWO = "2 sockets x 1 node x 4 cores x 1 thread, 8G per node"
HALF = GIB // 2


def case(made: Case) -> Case:
    """One of the cases."""
    CASES[made.__name__] = made
    return made


def refused(settings: Mapping[str, Any], *bodies: Mapping[str, Any], on: str = TWO) -> str:
    """The sentence of the last pod; those before it are admitted."""
    node = managers_of(on, {"kubeReserved": {"cpu": "1"}, **settings})
    ledger, said = node.start(), ""
    for body in bodies:
        outcome = node.admit(ledger, pod_from(body))
        ledger, said = outcome.ledger, outcome.refusal.message if isinstance(outcome, Refused) else ""
    return said


def one(name: str, cpu: str = "2", **extra: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A pod of one container."""
    return manifest(name, limits(cpu=cpu), **extra)


def whole(cpu: int, memory: str, *containers: Mapping[str, Any], inits: tuple[Mapping[str, Any], ...] = ()) -> Any:  # noqa: ANN401 - a manifest
    """A pod with pod-level resources."""
    body = manifest("app", *containers, inits=inits)
    same = {"cpu": cpu, "memory": memory}
    return {**body, "spec": {**body["spec"], "resources": {"requests": same, "limits": same}}}


def bare(name: str) -> dict[str, Any]:
    """A container without requests."""
    return {"name": name, "image": "example.com/x"}


WHOLE = {"featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod"}
STRICT = {"topologyManagerPolicy": "single-numa-node"}
STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


@case
def no_locality() -> str:
    """Two CPUs are free on each node, three are asked for."""
    return refused(STRICT, one("a", "2"), one("b", "2"), one("c", "3"))


@case
def no_locality_whole_pod() -> str:
    """The same of a pod with pod-level resources."""
    return refused({**STRICT, **WHOLE}, whole(6, "1Gi", limits("app", "5")))


@case
def no_locality_whole_pod_by_container() -> str:
    """The same under scope container."""
    return refused({**STRICT, **WHOLE, "topologyManagerScope": "container"}, whole(6, "1Gi", limits("app", "5")))


@case
def kubelets_devices() -> str:
    """The kubelet gave devices of two nodes, and the policy wants one."""
    world = _world(STRICT)
    world.see(manifest("train", {"name": "app", "resources": {"limits": {"cpu": "2", "memory": "64Mi", GPU: 2}}}))
    offered = tuple(Offered(GPU, f"g{number}", NodeSet.of(number)) for number in (0, 1))
    world.engine.devices_offered(offered)
    world.engine.devices_reported("train", {"app": offered})
    return world.ears.refused_["train"].message


@case
def cpus_too_few() -> str:
    """Policy none: nothing is aligned, and there are not enough at all."""
    return refused({"topologyManagerPolicy": "none"}, one("a", "4"), one("b", "4"))


@case
def cpus_of_the_pod_too_few() -> str:
    """Its containers ask for more than the pod as a whole."""
    return refused(WHOLE, whole(4, "1Gi", limits("a", "3"), limits("b", "3")))


@case
def not_whole_cores() -> str:
    """full-pcpus-only, and an odd number."""
    smt = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "topologyManagerPolicy": "none"}
    return refused(smt, one("a", "3"), on="1 socket x 1 node x 4 cores x 2 threads, 8G per node")


@case
def too_few_whole_cores() -> str:
    """full-pcpus-only, and the cores are in use."""
    smt = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "topologyManagerPolicy": "none"}
    return refused(smt, one("a", "4"), one("b", "4"), on="1 socket x 1 node x 4 cores x 2 threads, 8G per node")


@case
def shared_pool_empty() -> str:
    """Strict reservation, and all that is left."""
    strict = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}, "topologyManagerPolicy": "none"}
    return refused(strict, one("a", "7"))


@case
def namespace_ceiling() -> str:
    """Its namespace may hold four."""
    return refused({"exclusiveCPUs": {"perNamespace": 4}}, one("a", "3"), one("b", "2"))


@case
def no_cpus_for_init_containers() -> str:
    """A sidecar takes all CPUs of the pod; an init container after it shares."""
    many = (container("s", SIDECAR, cpus=4, memory=MIB), _sharing("i", INIT))
    return _empty(pod("a", *many, whole={"cpu": 4, "memory": GIB}))


@case
def no_cpus_for_shared_containers() -> str:
    """A container takes all CPUs of the pod, and another one shares."""
    return _empty(pod("a", container("a", APP, cpus=4, memory=MIB), _sharing("b"), whole={"cpu": 4, "memory": GIB}))


@case
def no_memory_for_init_containers() -> str:
    """A sidecar takes all memory of the pod."""
    desk = Desk(_even(), pod_level=True)
    many = (container("s", SIDECAR, cpus=1, memory=100 * MIB), _sharing("i", INIT), container("a", cpus=1, memory=0))
    return _pool(desk, pod("a", *many, whole={"cpu": 4, "memory": 100 * MIB}))


@case
def no_memory_for_shared_containers() -> str:
    """A container takes all memory of the pod."""
    desk = Desk(_even(), pod_level=True)
    many = (container("a", cpus=1, memory=100 * MIB), _sharing("b"))
    return _pool(desk, pod("a", *many, whole={"cpu": 4, "memory": 100 * MIB}))


@case
def memory_nowhere() -> str:
    """More memory than the nodes have."""
    return refused({**STATIC, "topologyManagerPolicy": "none"}, manifest("a", limits(memory="20Gi")))


@case
def memory_really_short() -> str:
    """onMemoryShortage: refuse, and the kernel has less free."""
    world = _world({**STATIC, "onMemoryShortage": "refuse"}, room=lambda wanted: dict.fromkeys(wanted, 32 * MIB))
    world.see(one("db"))
    return world.ears.refused_["db"].message


@case
def memory_is_not_bound() -> str:
    """onMemoryShortage: widen, and the kernel has less free."""
    world = _world({**STATIC, "onMemoryShortage": "widen"}, room=lambda wanted: dict.fromkeys(wanted, 32 * MIB))
    world.see(one("db"))
    return world.engine.ledger.pods["db"].why["app"]


@case
def memory_of_which_nothing_is_known() -> str:
    """The pod wishes its memory to be bound, and the kernel's figures cannot be read."""

    def broken(_wanted: Iterable[int]) -> Mapping[int, int]:
        raise SysfsMalformedError("/sys/devices/system/node/node0/meminfo", "has no line MemFree")

    world = _world({}, room=broken)
    body = manifest("db", align="numa,memory")
    asks = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    world.see({**body, "spec": {**body["spec"], "containers": [{"name": "app", "resources": asks}]}})
    return world.engine.ledger.pods["db"].why["app"]


@case
def memory_breaks_a_group() -> str:
    """Node 0 serves a pod of its own alone; the affinity wants both nodes."""

    def of(mode: Compatibility) -> str:
        desk = Desk(_even(), mode)
        desk.admit(pod("single", container("c", memory=MIB)), nodes(0))
        return _asked(desk, pod("b", container("c", memory=MIB)), nodes(0, 1))

    return _alike(of)


@case
def memory_default_not_preferred() -> str:
    """One node of the empty machine would do; half of it is in use."""
    return _alike(lambda mode: _asked(_partly(mode), pod("b", container("c", memory=GIB)), ANYWHERE))


@case
def memory_extension_not_preferred() -> str:
    """The node that the others want is too small."""
    return _alike(lambda mode: _asked(_partly(mode), pod("b", container("c", memory=GIB)), nodes(1)))


@case
def memory_no_default() -> str:
    """The kubelet's words where nothing fits (compatibility: kubelet)."""
    return _asked(Desk(_even(), KUBELET), pod("a", container("c", memory=20 * GIB)), Hint(None, preferred=False))


@case
def memory_no_extension() -> str:
    """The kubelet's words where nothing that contains the node is free."""
    desk = Desk(_even(3), KUBELET)
    desk.admit(pod("group", container("c", memory=2 * GIB + HALF)), nodes(1, 2))
    return _asked(desk, pod("b", container("c", memory=2 * GIB + HALF)), nodes(0))


@case
def memory_not_whole_bytes() -> str:
    """A fraction of a byte (compatibility: kubelet)."""
    part = replace(container("c"), requests={"cpu": 1000, "memory": 1500}, limits={"cpu": 1000, "memory": 1500})
    return _asked(Desk(_even(), KUBELET), pod("a", part), nodes(0))


@case
def devices_too_few() -> str:
    """Two are asked for, one is there."""
    return _devices(Rack(gpus([[0]])), asking("a", 2))


@case
def devices_unknown() -> str:
    """No device of that name."""
    rack = Rack(gpus([[0]]))
    assert not _devices(rack, asking("a", 1))
    return _later(rack, DeviceInventory(), asking("a", 1))


@case
def devices_all_unhealthy() -> str:
    """All of them are unhealthy."""
    return _devices(Rack(gpus([[0]], unhealthy=[0])), asking("a", 1))


@case
def devices_not_healthy_any_more() -> str:
    """One that it holds."""
    rack = Rack(gpus([[0], [0]]))
    assert not _devices(rack, asking("a", 1))
    return _later(rack, gpus([[0], [0]], unhealthy=[0]), asking("a", 1))


@case
def devices_changed() -> str:
    """It holds one and asks for two."""
    rack = Rack(gpus([[0], [0]]))
    assert not _devices(rack, asking("a", 1))
    return _devices(rack, asking("a", 2))


@case
def devices_of_whom_nobody_knows() -> str:
    """A running pod holds some, and the ledger that knew which is lost."""
    config = {"devices": [{"resource": "numalign.io/nic", "class": "02"}]}
    node = managers_of("2 sockets x 1 node x 4 cores x 1 thread, 8G per node, nic on 0 and 1", config)
    asks = {"limits": {"cpu": "1", "memory": "64Mi", "numalign.io/nic": 1}}
    first, second = (pod_from(manifest(name, {"name": "app", "resources": asks})) for name in ("old", "new"))
    outcome = node.admit(node.start(), first)
    ledger = node.release(outcome.ledger, "old")
    record = replace(outcome.ledger.pods["old"], adopted=True, why={"": UNTOLD.format("numalign.io/nic")})
    ledger = replace(ledger, pods={"old": record})
    refusal = node.admit(ledger, second)
    assert isinstance(refusal, Refused)
    return refusal.refusal.message


@case
def cannot_be_saved() -> str:
    """The disk was full before the pod came."""
    world = _world({})
    world.store.full = "No space left on device"
    world.see(one("first"))
    world.see(one("second"))
    return world.ears.refused_["second"].message


@case
def waits_behind_others() -> str:
    """It fits, and would delay the pod that waits before it."""
    world = _world({"onMisalignment": "wait"}, machine="1 socket x 1 node x 4 cores x 1 thread")
    world.see(one("a", "2"))
    world.see(one("first", "3", created=1))
    world.see(one("second", "1", created=2))
    refusal = world.engine.pods["second"].refusal
    return refusal.message if refusal else ""


@case
def never_fits() -> str:
    """It waits for what not even an empty node has."""
    world = _world({**STRICT, "onMisalignment": "wait"})
    world.see(one("a", "5"))
    return world.ears.refused_["a"].message


@case
def crowded_out() -> str:
    """One place to wait, and two who want it."""
    world = _world({**STRICT, "onMisalignment": "wait"}, most_waiting=1, waiting_limit=600.0)
    for number, cpu in enumerate(("3", "3", "4", "4")):
        world.see(one(f"p{number}", cpu, created=number))
    return world.ears.refused_["p3"].message


@case
def waited_too_long() -> str:
    """waiting.limit is over."""
    time = [0.0]
    world = _world({**STRICT, "onMisalignment": "wait"}, waiting_limit=600.0, clock=lambda: time[0])
    for number, cpu in enumerate(("3", "3", "3")):
        world.see(one(f"p{number}", cpu, created=number))
    time[0] = 612.0
    world.engine.reconcile()
    return world.ears.refused_["p2"].message


@case
def set_aside() -> str:
    """A fault of numalign's own with one pod, as tests/flow/test_isolated.py brings it about."""
    return ASIDE


@case
def sandboxed() -> str:
    """Its RuntimeClass has an overhead."""
    world = _world({})
    body = one("kata")
    world.see({**body, "spec": {**body["spec"], "overhead": {"cpu": "250m", "memory": "64Mi"}}})
    return world.engine.ledger.pods["kata"].why[""]


@case
def resize_without_room() -> str:
    """A growth that no CPUs are free for."""
    return _resize({"topologyManagerPolicy": "none"}, "2", "4", beside="4")


@case
def resize_of_the_last_shared_cpus() -> str:
    """A growth that would leave no CPU to share."""
    options = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}, "topologyManagerPolicy": "none"}
    return _resize(options, "2", "7")


@case
def resize_past_the_ceiling() -> str:
    """A growth that would take its namespace past its ceiling."""
    return _resize({"exclusiveCPUs": {"perNamespace": 2}}, "2", "3")


@case
def resize_on_nodes_that_are_gone() -> str:
    """It shared CPUs, and the NUMA node that its policy keeps it on is not there any more."""
    node = managers_of(TWO, {"kubeReserved": {"cpu": "1"}, **STRICT})
    ledger = node.admit(node.start(), pod_from(one("a", "500m"))).ledger
    gone = replace(ledger.pods["a"], affinity={"app": Hint(NodeSet.of(9), preferred=True)})
    return resized(node, replace(ledger, pods={"a": gone}), pod_from(one("a", "2"))).refused["app"]


@case
def resize_where_cpus_are_off() -> str:
    """The policy of the CPU manager became none."""
    node, after = managers_of(TWO, {"cpuManagerPolicyOptions": {}}), managers_of(TWO, {"cpuManagerPolicy": "none"})
    ledger = node.admit(node.start(), pod_from(one("a", "2"))).ledger
    return resized(after, ledger, pod_from(one("a", "3"))).refused["app"]


@case
def resize_of_an_unpinned_pod() -> str:
    """numalign.io/pin: false came while it ran."""
    world = _world({})
    world.see(one("a", "2"))
    world.see(one("a", "3", pin="false"))
    return world.engine.ledger.pods["a"].why["app"]


@case
def resize_of_a_pod_that_is_left_alone() -> str:
    """Its namespace was excluded while it ran."""
    exempt = ["", "namespace default is left alone (excludedNamespaces)"]
    world = _world({}, exempt=lambda _pod: exempt[0])
    world.see(one("a", "2"))
    exempt.reverse()
    world.see(one("a", "3"))
    return world.engine.ledger.pods["a"].why["app"]


@case
def resize_of_an_adopted_pod() -> str:
    """It ran before the agent, and got its CPUs before pinAdopted became false."""
    world = _world({})
    world.see(one("a", "2"), ran=["a"])
    world.engine.changed(world.node(), Switches(pin_adopted=False))
    world.see(one("a", "3"), ran=["a"])
    return world.engine.ledger.pods["a"].why["app"]


@case
def resize_that_an_annotation_leaves_out() -> str:
    """It opted out of exclusive CPUs while it ran."""
    world = _world({})
    world.see(one("a", "2"))
    world.see(one("a", "3", exclusive="none"))
    return world.engine.ledger.pods["a"].why["app"]


@case
def resize_to_a_part_of_a_core() -> str:
    """Whole cores are asked for, and it shrinks to less than one."""
    node = managers_of(
        "1 socket x 1 node x 8 cores x 2 threads", {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    )
    ledger = node.admit(node.start(), pod_from(one("a", "8"))).ledger
    return resized(node, ledger, pod_from(one("a", "1"))).refused["app"]


@case
def resize_where_the_gate_is_off() -> str:
    """PodLevelResourceManagers was switched off while a container of a pod with pod-level resources held CPUs."""
    scope = {**WHOLE, "topologyManagerScope": "container", "topologyManagerPolicy": "best-effort"}
    node, after = managers_of(TWO, scope), managers_of(TWO, {})
    ledger = node.admit(node.start(), pod_from(whole(4, "1Gi", limits("app", "2"), bare("b")))).ledger
    return resized(after, ledger, pod_from(whole(4, "1Gi", limits("app", "3"), bare("b")))).refused["app"]


@case
def resize_while_the_ledger_was_lost() -> str:
    """A container runs on fewer CPUs of its own than it asks for, and no ledger says why."""
    world = _world({})
    world.run(one("a", "2"))
    pods = [pod_from(one("a", "4"))]
    after = World(Path(world.cgroups.mounts.cpuset), store=MemoryStore(), pods=pods)
    return after.engine.ledger.pods["a"].why["app"]


@case
def resize_as_a_whole() -> str:
    """A pod that is managed as a whole."""
    node = managers_of(TWO, {**WHOLE, "topologyManagerPolicy": "best-effort"})
    ledger = node.admit(node.start(), pod_from(whole(4, "1Gi", limits("app", "2"), bare("b")))).ledger
    return next(
        iter(resized(node, ledger, pod_from(whole(5, "1Gi", limits("app", "2"), bare("b")))).refused.values())
    )


@case
def resize_confined() -> str:
    """A confined pod that grows beyond its node."""
    node = managers_of(TWO, {"kubeReserved": {"cpu": "1"}})
    ledger = node.admit(node.start(), pod_from(_aligned("2"))).ledger
    return next(iter(resized(node, ledger, pod_from(_aligned("6"))).refused.values()))


@case
def resize_of_memory() -> str:
    """Bound memory that grows beyond its node."""
    node = managers_of(TWO, {**STATIC, "topologyManagerPolicy": "single-numa-node"})
    ledger = node.admit(node.start(), pod_from(manifest("a", limits(memory="1Gi")))).ledger
    return resized(node, ledger, pod_from(manifest("a", limits(memory="9Gi")))).refused["app"]


# ---- how


def _world(settings: Mapping[str, Any], **more: Any) -> World:  # noqa: ANN401 - the world's own
    folder = Path(tempfile.mkdtemp(prefix="why-"))
    world = World(folder / "tree", settings=settings, store=MemoryStore(), **more)
    weakref.finalize(world, shutil.rmtree, folder)
    world.engine.pods_listed(set())
    return world


def _even(count: int = 2) -> Any:  # noqa: ANN401 - a machine
    return machine(*(numa(each, 2 * GIB + (each == 0)) for each in range(count)))


def _alike(of: Callable[[Compatibility], str]) -> str:
    """The same sentence as the kubelet's."""
    (said,) = {of(mode) for mode in BOTH}
    return said


def _partly(mode: Compatibility) -> Desk:
    """Half of node 0 is in use; the other nodes are smaller."""
    desk = Desk(machine(numa(0, GIB + 1), numa(1, HALF), numa(2, HALF)), mode)
    desk.admit(pod("single", container("c", memory=HALF)), nodes(0))
    return desk


def _sharing(name: str, kind: Any = APP) -> Any:  # noqa: ANN401 - a container
    return replace(container(name, kind), requests={}, limits={})


def _asked(desk: Desk, of: Pod, affinity: Hint) -> str:
    refusal = desk.allocate(of, affinity)
    return _wrapped(refusal).message if refusal else ""


def _pool(desk: Desk, of: Pod) -> str:
    assert isinstance(desk.provider, MemoryManager)
    taken = desk.provider.allocate_pod(desk.ledger, of, nodes(0))
    return _wrapped(taken).message if isinstance(taken, Refusal) else ""


def _empty(of: Pod) -> str:
    """What the CPU manager says of a pod as a whole."""
    manager = CpuManager(_even(), Rules(pod_level_managers=True))
    node = managers_of(TWO, WHOLE)
    taken = manager.allocate_pod(node.start(), of, nodes(0))
    return _wrapped(taken).message if isinstance(taken, Refusal) else ""


def _devices(rack: Rack, of: Pod) -> str:
    refusal = rack.allocate(of, nodes(0))
    return _wrapped(refusal).message if refusal else ""


def _later(rack: Rack, inventory: DeviceInventory, of: Pod) -> str:
    after = Rack(inventory)
    after.ledger = rack.ledger
    return _devices(after, of)


def _aligned(cpu: str) -> dict[str, Any]:
    body = manifest("a", align="numa")
    asks = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    return {**body, "spec": {**body["spec"], "containers": [{"name": "app", "resources": asks}]}}


def _resize(settings: Mapping[str, Any], before: str, after: str, beside: str = "") -> str:
    node = managers_of(TWO, {"kubeReserved": {"cpu": "1"}, **settings})
    ledger = node.admit(node.start(), pod_from(one("a", before))).ledger
    if beside:
        ledger = node.admit(ledger, pod_from(one("b", beside))).ledger
    return resized(node, ledger, pod_from(one("a", after))).refused["app"]


FOLDERS = ("agent/core", "agent/engine", "agent/forecast", "agent/node")
MAKERS = {"Refusal", "unexpected", "_full"}
READ_BACK = {"agent/core/explain/explainer.py"}
"""It makes a Refusal of a sentence that a record tells: nothing new."""
NOT_REACHED = {("agent/core/memory/provider.py", "unexpected(NO_EXTENSION)")}
"""Only where the kubelet's two accounts of reuse disagree; the sentence is that of `memory_no_extension`."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place of the code that makes a refusal."""

    path: str
    first: int
    last: int


def _parsed() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in READ_BACK:
                yield name, ast.parse(path.read_text("utf-8"))


def sites() -> Iterator[Site]:
    """All places that make a refusal."""
    for path, module in _parsed():
        for each in ast.walk(module):
            called = isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in MAKERS
            if isinstance(each, ast.Call) and called and (path, ast.unparse(each)) not in NOT_REACHED:
                yield Site(path, each.lineno, each.end_lineno or each.lineno)


def finals() -> Iterator[str]:
    """The words for which a wait ends for good."""
    for _, module in _parsed():
        for each in ast.walk(module):
            if isinstance(each, ast.Dict):
                for key, value in zip(each.keys, each.values, strict=True):
                    if isinstance(key, ast.Name) and key.id == "FINAL" and isinstance(value, ast.Constant):
                        yield str(value.value)


def texts() -> Iterator[tuple[str, str]]:
    """Sentences that are constants of a module that refuses: (name, text)."""
    there = {site.path for site in sites()} | {"agent/core/cpus/pods.py", "agent/core/admission/waiting.py"}
    for path, module in _parsed():
        for each in module.body if path in there else ():
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                text, name = each.value.value, ast.unparse(each.targets[0])
                if isinstance(text, str) and " " in text and name.isupper():
                    yield f"{path}:{name}", text


def resize_texts() -> Iterator[str]:
    """What follows the prefix of a resize that is not followed: the f-strings, "*" for what is filled in."""
    path = ROOT / "agent/core/admission/resize.py"
    for each in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(each, ast.JoinedStr) and isinstance(each.values[0], ast.FormattedValue):
            first = each.values[0].value
            if isinstance(first, ast.Name) and first.id == "PREFIX":
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in each.values[1:])


class Recorder:
    """Notes which lines of the code make refusals while it is entered."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.finals: set[str] = set()
        self._init = Refusal.__init__

    def __enter__(self) -> Self:
        def noted(this: Refusal, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as they come
            for depth in (1, 2):
                frame = sys._getframe(depth)  # noqa: SLF001 - who calls
                self.lines.add((frame.f_code.co_filename.removeprefix(f"{ROOT}/"), frame.f_lineno))
            self._init(this, *args, **kwargs)
            if "final" in this.facts:
                self.finals.add(str(this.facts["final"]))

        Refusal.__init__ = noted  # type: ignore[assignment, method-assign]  # watched while the page is made
        return self

    def __exit__(self, *_: object) -> None:
        Refusal.__init__ = self._init  # type: ignore[method-assign]  # watched while the page is made

    def reached(self, site: Site) -> bool:
        return any(path == site.path and site.first <= line <= site.last for path, line in self.lines)


PAGE = pages.DOCS / "why.md"


@cache
def produced() -> tuple[dict[str, str], Recorder]:
    """Every case brought about once: its sentence, and where in the code refusals were made."""
    with Recorder() as recorder:
        return {name: made() for name, made in CASES.items()}, recorder


def entries() -> Iterator[tuple[str, list[str], str]]:
    """Of each entry of the page: its heading, the sentences that it begins with, and what follows them."""
    for part in re.split(r"^##+ ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        before, fence, after = rest.partition("```text\n")
        if fence:
            sentences, _, after = after.partition("```\n")
            yield head, sentences.splitlines(), before + after


@pytest.mark.parametrize("name", CASES)
def test_the_page_has_every_sentence(name: str) -> None:
    """What the product says when it refuses like this begins an entry of the page, word for word."""
    said = produced()[0][name]
    assert said
    assert said in {each for _, sentences, _ in entries() for each in sentences}


def test_every_sentence_of_the_page_is_the_products() -> None:
    """Nothing on the page is made up or out of date, and every entry says what to do."""
    said = set(produced()[0].values())
    for head, sentences, rest in entries():
        assert set(sentences) <= said, head
        assert "**Remedy.** " in rest, head


def test_every_place_that_refuses_is_on_the_page() -> None:
    """Each call that makes a refusal in core and engine was reached by a case; so was each end of a wait."""
    _, recorder = produced()
    assert [site for site in sites() if not recorder.reached(site)] == []
    assert set(finals()) == recorder.finals


def test_every_text_of_the_code_is_on_the_page() -> None:
    """The constants of modules that refuse, and all that a resize can be told: each is the form of some sentence."""
    said = produced()[0].values()
    for name, text in texts():
        form = re.escape(text).replace(r"\{\}", ".+")
        assert any(re.search(form, each) for each in said), name
    for text in resize_texts():
        form = re.escape(f"resize not followed{text}").replace(r"\*", ".+")
        assert any(re.fullmatch(form, each) for each in said), text


def test_every_reason_has_its_heading() -> None:
    """Who sees the Event finds its reason."""
    heads = set(re.findall(r"^## (\w+)$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert {each.value for each in Reason} <= heads
