"""Pods with DRA claims, with a real scheduler, kubelets, runtime and drivers: CPUs and memory follow the device.

What each sequence must give is written down in SEQUENCES before it is run: on numalign's node, and beside it on the
shadow, whose kubelet pins with the same words (single-numa-node) and does not see DRA devices by design.
The machine: four NUMA nodes of four CPUs, two threads to a core; CPUs 0 and 1 are the system's. Without a claim a pod
of two CPUs gets 2-3 on node 0, the next one 4-5 on node 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pytest

from tests.lab import agent, report
from tests.lab.claims import CLAIMS, EXTENDED, Desk
from tests.lab.cluster import Lab
from tests.lab.node import Node
from tests.lab.pods import Object, container, pod
from tests.lab.reading import Sets
from tests.lab.stage import AGENT
from tests.patience import until

ON0, ON1, ON2, ON3 = Sets("2-3", "0"), Sets("4-5", "1"), Sets("8-9", "2"), Sets("12-13", "3")
BESIDE1, BESIDE2, BESIDE3 = Sets("6-7", "1"), Sets("10-11", "2"), Sets("14-15", "3")
NOBODY_SAYS = "unknown: its driver publishes neither a NUMA node nor a PCI address"
GONE = "unknown: no ResourceSlice of this node has it"
WATCHES = "unknown: admin access: it watches the device, and works wherever it runs"
APART = "which cannot be chosen again"
ASKING = """
import json, sys, time
from agent.host.podresources.client import PodResources
kubelet, until = PodResources(), time.time() + 300
print("asking", flush=True)
while time.time() < until:
    try:
        found = kubelet.claims("default", sys.argv[1]) or {}
    except Exception as error:
        found = {}
    if found:
        print(json.dumps([time.time(), {name: [each.id for each in own] for name, own in found.items()}]), flush=True)
        break
    time.sleep(0.1)
"""
"""Asks the kubelet for a pod's claims until it knows them; says when that was, and what it said."""
ASKED = "/run/lab-asked"
SLICES_KEPT = 31.0
"""Seconds after which the agent has no list of slices that it takes for fresh."""


@dataclass(frozen=True)
class Pod:
    """One pod of a sequence, of two CPUs.

    Attributes:
        claim: the claim that it uses; "" for one that asks for the extended resource.
        gets: on numalign's node; None: it is refused.
        says: device -> NUMA nodes, or why they are unknown; of a refused one a part of the sentence.
        shadow: what the shadow's kubelet gives it.
        template: the claim is made from a template.
    """

    claim: str
    gets: Sets | None
    says: Mapping[str, str] | str
    shadow: Sets = ON0
    template: bool = False


@dataclass(frozen=True)
class Sequence:
    """Claims, pods one after the other, and what happens before the last of them.

    Attributes:
        claims: claim -> the devices that it asks for.
        between: what happens before the last pod comes.
        admin: they ask for admin access.
    """

    claims: Mapping[str, tuple[str, ...]]
    pods: tuple[Pod, ...]
    between: Callable[[Desk], None] | None = None
    admin: bool = False


def remade(desk: Desk) -> None:
    """The first pod ends; its claim is deleted, and made again for another device."""
    desk.lab.clear()
    for node in desk.nodes:
        desk.unclaim(node, "c")
        desk.claim(node, "c", ("gpu3",))


def agent_anew(desk: Desk) -> None:
    """The agent's pod is deleted, and the DaemonSet makes another one."""
    agent.restart(desk.lab.numalign)
    agent.wait_ready(desk.lab.numalign)


def kubelet_anew(desk: Desk) -> None:
    """Both kubelets restart; their drivers register again."""
    for node in desk.nodes:
        node.restart("kubelet")
    for node in desk.nodes:
        node.wait_ready()


def unpublished(desk: Desk) -> None:
    """The driver no longer publishes gpu2; the list that the agent has grows old."""
    for node in desk.nodes:
        desk.publish(node, without="gpu2")
    time.sleep(SLICES_KEPT)


SEQUENCES = {
    "one-device": Sequence({"c": ("gpu2",)}, (Pod("c", ON2, {"gpu2": "2"}),)),
    "two-devices-on-one-node": Sequence(
        {"c": ("gpu3", "twin3")}, (Pod("c", ON3, {"gpu3": "3", "twin3": "3"}),),
    ),
    "two-devices-on-two-nodes": Sequence({"c": ("gpu1", "gpu2")}, (Pod("c", None, APART),)),
    "a-shared-claim": Sequence(
        {"c": ("gpu2",)}, (Pod("c", ON2, {"gpu2": "2"}), Pod("c", BESIDE2, {"gpu2": "2"}, ON1)),
    ),
    "a-template": Sequence({"c": ("gpu1",)}, (Pod("c", ON1, {"gpu1": "1"}, template=True),)),
    "two-drivers": Sequence({"c": ("gpu2", "nic2")}, (Pod("c", ON2, {"gpu2": "2", "nic2": "2"}),)),
    "a-driver-without-attributes": Sequence({"c": ("plain",)}, (Pod("c", ON0, {"plain": NOBODY_SAYS}),)),
    "the-claim-deleted-and-remade": Sequence(
        {"c": ("gpu2",)}, (Pod("c", ON2, {"gpu2": "2"}), Pod("c", ON3, {"gpu3": "3"})), remade,
    ),
    "the-agent-restarts-in-between": Sequence(
        {"c": ("gpu1",), "d": ("gpu2",)}, (Pod("c", ON1, {"gpu1": "1"}), Pod("d", ON2, {"gpu2": "2"}, ON1)),
        agent_anew,
    ),
    "the-kubelet-restarts-in-between": Sequence(
        {"c": ("gpu3",)}, (Pod("c", ON3, {"gpu3": "3"}), Pod("c", BESIDE3, {"gpu3": "3"}, ON1)), kubelet_anew,
    ),
    "the-device-goes": Sequence(
        {"c": ("gpu2",)}, (Pod("c", ON2, {"gpu2": "2"}), Pod("c", ON0, {"gpu2": GONE}, ON1)), unpublished,
    ),
    "admin-access": Sequence({"c": ("gpu3",)}, (Pod("c", ON0, {"gpu3": WATCHES}),), admin=True),
    "an-extended-resource": Sequence({}, (Pod("", ON1, {"gpu1": "1"}),)),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Desk]:
    """Both nodes with drivers, device classes, and an agent that follows claims; put back afterwards."""
    agent.configure(lab.numalign, {"dra": {"enabled": True}})
    desk = Desk(lab)
    desk.start()
    yield desk
    desk.clear()
    desk.stop()
    agent.configure(lab.numalign, {})


@pytest.fixture
def desk(served: Desk) -> Iterator[Desk]:
    """The same with no pods and no claims, before and after."""
    served.clear()
    yield served
    served.clear()
    for node in served.nodes:
        served.publish(node)


def body_of(node: Node, number: int, wish: Pod) -> Object:
    """The manifest of a sequence's pod on a node."""
    asks = {} if wish.claim else {EXTENDED: "1"}
    own = container(cpu="2", memory="64Mi")
    for amounts in own["resources"].values():
        amounts.update(asks)
    if wish.claim:
        own["resources"]["claims"] = [{"name": "mine"}]
    name = f"{wish.claim}-{node.name}"
    source = {"resourceClaimTemplateName" if wish.template else "resourceClaimName": name}
    claims: Object = {"resourceClaims": [{"name": "mine", **source}]} if wish.claim else {}
    return pod(f"p{number}-{node.name}", own, **claims)


def asked_for(sequence: Sequence, wish: Pod) -> set[str]:
    """The names of the devices that a pod's container sees."""
    return set(wish.says if isinstance(wish.says, dict) else sequence.claims[wish.claim])


def outcome(desk: Desk, sequence: Sequence, number: int, node: Node) -> Sets | None:
    """What a pod of a sequence came to on a node, as it was written down; None where it was refused."""
    wish, name = sequence.pods[number], f"p{number}-{node.name}"
    gets = wish.gets if node is desk.lab.numalign else wish.shadow
    found = desk.outcome(node, name, refused=gets is None)
    assert found == gets, (node.name, number)
    if found is not None:
        assert desk.devices(node, name).keys() == asked_for(sequence, wish)
    if node is desk.lab.numalign:
        told, why = desk.told(name)
        assert told == wish.says or (isinstance(wish.says, str) and wish.says in why), (told, why)
    return found


@pytest.mark.parametrize("name", SEQUENCES)
def test_s22_cpus_and_memory_follow_the_claim(desk: Desk, name: str) -> None:
    """The scheduler allocates: each pod's CPUs and memory, in books and kernel, and what is said, are as written."""
    sequence, lab = SEQUENCES[name], desk.lab
    for claim, devices in sequence.claims.items():
        for node in desk.nodes:
            desk.claim(node, claim, devices, admin=sequence.admin, template=sequence.pods[0].template)
    seen: dict[str, Sets] = {}
    for number, wish in enumerate(sequence.pods):
        if sequence.between is not None and number + 1 == len(sequence.pods):
            sequence.between(desk)
        for node in desk.nodes:
            lab.create(body_of(node, number, wish), node, scheduled=True)
        found = {f"p{number}-{node.name}": outcome(desk, sequence, number, node) for node in desk.nodes}
        seen.update({each: sets for each, sets in found.items() if sets is not None})
    for node in desk.nodes:  # who runs is where he was
        mine = {each["metadata"]["name"] for each in lab.pods(node)} & seen.keys()
        assert {each: lab.kernel(node, (each,))[each]["c"] for each in mine} == {each: seen[each] for each in mine}
    report.record(f"claims: {name}", ", ".join(f"{each}: {sets.cpus}" for each, sets in seen.items()))


def test_s22_the_claim_of_a_refused_pod_goes_with_it(desk: Desk) -> None:
    """Under `fail` the control plane deletes what it made from the template, and the next pod gets the device."""
    node, lab = desk.lab.numalign, desk.lab
    for claim, devices in (("both", ("gpu1", "gpu2")), ("one", ("gpu1",))):
        desk.claim(node, claim, devices, template=True)
    lab.create(body_of(node, 0, Pod("both", None, APART, template=True)), node, scheduled=True)
    assert desk.outcome(node, f"p0-{node.name}", refused=True) is None
    assert APART in desk.told(f"p0-{node.name}")[1], "it had a claim, and that was allocated"
    until(lambda: not lab.plane.call("GET", CLAIMS)["items"], "the end of the claim that was made for it")
    lab.create(body_of(node, 1, Pod("one", ON1, {}, template=True)), node, scheduled=True)
    assert desk.outcome(node, f"p1-{node.name}", refused=False) == ON1
    assert lab.pod(f"p0-{node.name}")["status"]["phase"] == "Failed"


def _said(node: Node) -> list[str]:
    return node.run(f"cat {ASKED}.out; true").splitlines()


def _answered(node: Node, lines: int) -> bool:
    return len(_said(node)) >= lines


def test_podresources_names_the_claim_before_the_sandbox_is_made(desk: Desk) -> None:
    """The kubelet prepares claims first: Get knows driver, pool and device then, of app containers alone."""
    node, lab = desk.lab.numalign, desk.lab
    desk.claim(node, "c", ("gpu2",))
    body = body_of(node, 0, Pod("c", ON2, {}))
    name, (own,) = body["metadata"]["name"], body["spec"]["containers"]
    body["spec"]["initContainers"] = [{**own, "name": "before", "command": ["/bin/sleep", "5"]}]
    node.put(f"{ASKED}.py", ASKING)
    inside = f"nsenter -t $(pgrep -o -f '{AGENT}') -m /opt/numalign/bin/python - {name}"  # its files, not its memory
    node.put(f"{ASKED}.sh", f"exec {inside} <{ASKED}.py >{ASKED}.out 2>&1\n")
    node.run(f"rm -f {ASKED}.out; systemd-run --quiet --collect --unit=lab-asked bash {ASKED}.sh")
    until(partial(_answered, node, 1), "the one who asks")
    lab.create(body, node, scheduled=True)
    lab.wait_running(name)
    until(partial(_answered, node, 2), lambda: "\n".join(_said(node)))
    at, told = json.loads(_said(node)[1])
    conditions = {each["type"]: each for each in lab.pod(name)["status"]["conditions"]}
    made = datetime.fromisoformat(conditions["PodReadyToStartContainers"]["lastTransitionTime"]).timestamp()
    report.record("podresources Get: the claim was known before the sandbox was made, s", f"{made - at:.1f}")
    assert {each: [one.rpartition("/")[2] for one in ids] for each, ids in told.items()} == {"c": ["gpu2"]}
    assert at < made + 1, "the API tells whole seconds"
