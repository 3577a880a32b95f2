"""Devices of DRA claims: each case with the node, the fate and the words that were written beforehand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.values import PageInput, pods_value
from agent.core.devices.claims import told
from agent.core.explain.serialize import lines
from agent.forecast.whatif import Difference, WhatIf, what_if
from agent.kube.objects.pod_objects import seen
from agent.kube.pod_report import ASSIGNMENT
from agent.model.claims import ClaimDevice
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.rules import Policy
from agent.node.explaining import explained
from agent.node.transitions import MOST_TOLD
from tests.flow.claims import DRIVER, Api, Document, Kubelet, Node, claim, device, nowhere, result, slices, using
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE, until

STRICT = {"policy": "single-numa-node", "on_misalignment": "fail"}
OTHER = "nic.example.com"


def template(body: Document) -> Document:
    """The claim is one that was made from a template."""
    body["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    body["status"] = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "c-made"}]}
    return body


def extended() -> Document:
    """A pod that asks for `gpu.example.com/gpu: 1`, and the scheduler made a claim for it."""
    body = container()
    body["resources"]["limits"]["gpu.example.com/gpu"] = "1"
    found = manifest("job", body, policy="single-numa-node", on_misalignment="fail")
    mapped = [{"containerName": "app", "resourceName": "gpu.example.com/gpu", "requestName": "container-0-request-0"}]
    found["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "own", "requestMappings": mapped}}
    return found


@dataclass(frozen=True)
class Case:
    """What is there, and what is expected of it: the nodes of the CPUs, and a part of what is said."""

    api: Api
    body: Document
    node: str
    says: str
    refused: bool = field(default=False)


def cases() -> dict[str, Case]:
    """Without a claim every pod here lies on node 0."""
    one = slices(device("d0", 0), device("d1", 1), device("e1", 1))
    apart = "device gpu.example.com/n/d1 of claim c on NUMA node 1, which cannot be chosen again; no NUMA node is"
    sysfs = slices(device("d1", pciBusID="0000:01:00.0"))
    own = slices({"name": "d1", "attributes": {"socket": {"int": 1}}})
    share = "a671734a-e8e5-11e4-8fde-42010af09327"
    counted = {"counterSet": "gpu", "counters": {"memory": {"value": "40Gi"}}}
    counters = slices()
    counters["spec"]["sharedCounters"] = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
    parts = [{**device(name, 1), "consumesCounters": [counted]} for name in ("d1-half-0", "d1-half-1")]
    selected = [{**device("d0", 1), "nodeName": "n"}]
    return {
        "one device": Case(
            Api(one, c=claim(result("d1"))), using("c", **STRICT), "1",
            "device gpu.example.com/n/d1 of claim c on NUMA node 1 (by attribute resource.kubernetes.io/numaNode)",
        ),
        "two on one node": Case(Api(one, c=claim(result("d1"), result("e1"))), using("c", **STRICT), "1", "n/e1 of"),
        "two on two nodes, strict": Case(
            Api(one, c=claim(result("d0"), result("d1"))), using("c", **STRICT), "", apart, refused=True
        ),
        "two on two nodes, best effort": Case(
            Api(one, c=claim(result("d0"), result("d1"))), using("c", cpu="4"), "1",
            "n/d0 of claim c on NUMA node 0",  # near both: of the affinity 0-1 a whole socket is taken
        ),
        "template": Case(
            Api(one, **{"c-made": claim(result("d1"))}), template(using("c", **STRICT)), "1", "d1 of claim c-made"
        ),
        "two drivers": Case(
            Api(
                one, slices(device("n1", 1), driver=OTHER), c=claim(result("d1")),
                n=claim(result("n1", driver=OTHER)),
            ),
            using("c", "n", **STRICT), "1", "device nic.example.com/n/n1 of claim n on NUMA node 1",
        ),
        "no attributes": Case(
            Api(slices(device("d1")), c=claim(result("d1"))), using("c", **STRICT), "0",
            "d1 of claim c on no known NUMA node (no hint: its driver publishes neither a NUMA node",
        ),
        "sysfs": Case(
            Api(sysfs, c=claim(result("d1"))), using("c", **STRICT), "1",
            "d1 of claim c on NUMA node 1 (by PCI function 0000:01:00.0)",
        ),
        "a driver's own name": Case(
            Api(own, c=claim(result("d1"))),
            using("c", **STRICT), "1", "by attribute gpu.example.com/socket",
        ),
        "near two nodes": Case(
            Api(slices(device("d1", 0, 1)), c=claim(result("d1"))), using("c", **STRICT), "0", "on NUMA nodes 0-1"
        ),
        "device gone": Case(
            Api(slices(device("d0", 0)), c=claim(result("d1"))), using("c", **STRICT), "0",
            "d1 of claim c on no known NUMA node (no hint: no ResourceSlice of this node has it)",
        ),
        "an old generation": Case(
            Api(slices(device("d1", 0)), slices(device("d1", 1), generation=2), c=claim(result("d1"))),
            using("c", **STRICT), "1", "n/d1 of claim c on NUMA node 1",
        ),
        "admin access": Case(
            Api(one, c=claim(result("d1", adminAccess=True))), using("c", **STRICT), "0",
            "d1 of claim c on no known NUMA node (no hint: admin access",
        ),
        "shared capacity": Case(
            Api(one, c=claim(result("d1", shareID=share))), using("c", **STRICT), "1",
            "n/d1 of claim c on NUMA node 1",
        ),
        "a part of a partitionable device": Case(
            Api(counters, slices(*parts), c=claim(result("d1-half-1"))), using("c", **STRICT), "1",
            "n/d1-half-1 of claim c on NUMA node 1",
        ),
        "slices without a node name": Case(
            Api(nowhere(device("d1", 1), allNodes=True), nowhere(*selected, perDeviceNodeSelection=True),
                c=claim(result("d1"), result("d0"))),
            using("c", **STRICT), "0",
            "d1 of claim c on no known NUMA node (no hint: no ResourceSlice of this node has it)",
        ),
        "extended resource": Case(
            Api(one, own=claim(result("d1", request="container-0-request-0"))), extended(), "1", "n/d1 of claim own"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", cases())
def test_a_claim_is_followed(tmp_path: Path, name: str) -> None:
    """S22: CPUs lie where the claim's devices are; explain, annotation and page name claim and device."""
    case = cases()[name]
    node = Node(tmp_path, case.api, machine="2 sockets x 1 node x 4 cores x 1 thread, gpu on 1")
    node.known(case.body)
    assert node.on() == case.node
    refusal = node.world.ears.refused_.get("job")
    assert (refusal is not None) == case.refused
    told = explained(node.world.engine.snapshot, "job")
    assert told is not None
    said = [*lines(told), refusal.message if refusal else ""]
    assert any(case.says in each for each in said), said
    if not case.refused:
        assert "claims" in (node.world.report("job").annotations[ASSIGNMENT] or "")
        (shown,) = pods_value(PageInput(node.world.engine.snapshot))
        assert any(case.says in each for each in shown["claims"]), shown
    assert case.api.asked.count("LIST resourceslices") == 1


@pytest.mark.parametrize("answers", ["fixed", "kubelet"])
def test_a_refusal_names_the_claims_devices(tmp_path: Path, answers: str) -> None:
    """As numalign's answers and as a kubelet's: the kubelet refuses nobody for a claim, and has no words for it."""
    api = Api(slices(device("d0", 0), device("d1", 1)), c=claim(result("d0"), result("d1")))
    node = Node(tmp_path, api, settings={"compatibility": answers})
    node.known(using("c", **STRICT))
    refusal = node.world.ears.refused_["job"]
    assert "n/d1 of claim c on NUMA node 1, which cannot be chosen again; no NUMA node is" in refusal.message


def test_without_the_setting_nothing_is_asked(tmp_path: Path) -> None:
    """Off by default: a pod with a claim costs no request and no thread, and lies as it would without."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api, settings={"dra": {"enabled": False}})
    node.lookup._enabled = lambda: False
    node.known(using("c", **STRICT))
    assert (node.on(), api.asked, node.lookup._thread.is_alive()) == ("0", [], False)


def test_a_shared_claim_is_each_pods_own(tmp_path: Path) -> None:
    """Two pods of one claim both follow it, and neither loses it to the other; the end of one changes nothing."""
    node = Node(tmp_path, Api(slices(device("d1", 1)), c=claim(result("d1"))))
    for name in ("job", "twin"):
        node.known(using("c", name=name, **STRICT))
    assert (node.on("job"), node.on("twin")) == ("1", "1")
    node.world.engine.pods_gone(["job"])
    assert node.on("twin") == "1"
    assert set(node.world.engine.ledger.others["claims"]) == {"twin"}


def test_a_restart_keeps_what_was_known(tmp_path: Path) -> None:
    """A claim's device stands in the saved ledger: an agent that starts while the API server is away tells of it."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api)
    node.known(using("c", **STRICT))
    node.world.start("job")
    before = node.world.effective("job")
    api.away = True
    again = Node(tmp_path, api, store=node.world.store, pods=node.world.pods.values())
    told = explained(again.world.engine.snapshot, "job")
    assert told is not None
    assert any("device gpu.example.com/n/d1 of claim c on NUMA node 1" in each for each in told.notes)
    assert (again.on(), again.world.effective("job")) == ("1", before)


def test_a_claim_that_goes_moves_nobody(tmp_path: Path) -> None:
    """The running pod stays and keeps what was known; a claim made anew is decided with the pod that comes for it."""
    api = Api(slices(device("d0", 0), device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api)
    node.known(using("c", **STRICT))
    node.world.start("job")
    del api.claims["c"]
    node.turn(60.0)
    assert (node.on(), set(node.world.engine.ledger.others["claims"])) == ("1", {"job"})
    api.claims["c"] = claim(result("d0"))
    node.known(using("c", name="next", **STRICT))
    assert (node.on("job"), node.on("next")) == ("1", "0")


def test_a_templates_claim_goes_with_its_pod(tmp_path: Path) -> None:
    """S22, `fail`: the claim of a refused pod goes with it, and the next pod is decided by the claim that it got."""
    devices = slices(device("d0", 0), device("d1", 1))
    api = Api(devices, **{"c-made": claim(result("d0"), result("d1"))})
    node = Node(tmp_path, api)
    node.known(template(using("c", **STRICT)))
    assert "n/d0 of claim c-made on NUMA node 0" in node.world.ears.refused_["job"].message
    del api.claims["c-made"]  # by its owner, as Kubernetes does once the pod is deleted
    node.lookup.pod_gone("job")
    node.world.engine.pods_gone(["job"])
    node.turn()
    assert "claims" not in node.world.engine.ledger.others
    api.claims["c-again"] = claim(result("d1"))
    following = template(using("c", name="next", **STRICT))
    following["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = "c-again"
    asked = len(api.asked)
    node.known(following)
    assert (node.on("next"), api.asked[asked:]) == ("1", ["GET resourceclaims"])
    node.world.start("next")
    assert any("n/d1 of claim c-again on NUMA node 1" in each for each in told(node.world.engine.ledger, "next"))
    assert "next" not in node.world.ears.refused_


def test_late_word_moves_nothing_that_runs(tmp_path: Path) -> None:
    """The API server was away until the container ran: it stays, and the condition says why it is not aligned."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    api.away = True
    node = Node(tmp_path, api)
    node.known(using("c", policy="restricted"))
    node.world.start("job")
    api.away = False
    node.turn(0.5)
    assert (node.on(), node.world.condition("job")) == ("0", "False NotAligned")
    assert node.world.report("job").message == (
        "app: CPUs 1-2 lie on NUMA node 0, device gpu.example.com/n/d1 of claim c on NUMA node 1; the claim's device "
        "became known when the container's place was decided already"
    )


def test_podresources_serves_where_the_server_is_away(tmp_path: Path) -> None:
    """The kubelet names the devices, slices of before say where they are; where nobody knows, tries are few."""
    api = Api(slices(device("d1", 1), device("d0", 0)), c=claim(result("d0")))
    kubelet = Kubelet({"app": (ClaimDevice("c", DRIVER, "n", "d1"),)})
    node = Node(tmp_path, api, kubelet=kubelet)
    node.known(using("c", name="first"))
    api.away = True
    node.known(using("c", **STRICT))
    assert node.on() == "1"
    kubelet.told = None
    node.known(using("c", name="third"))
    asked = len(api.asked)
    for _ in range(20):
        node.turn(15.0)
    assert len(api.asked) - asked == 6, "tries are few"
    assert "third" not in node.world.engine.ledger.others["claims"]


@pytest.mark.parametrize("ahead", [False, True])
def test_s11_one_that_can_never_be_does_not_wait(tmp_path: Path, ahead: bool) -> None:  # noqa: FBT001 - of a parametrized test
    """Two devices on two nodes, a strict policy, `wait`: refused at once, whether or not it stood in line."""
    api = Api(slices(device("d0", 0), device("d1", 1)), c=claim(result("d0"), result("d1")))
    node = Node(tmp_path, api)
    if ahead:
        for name in ("a", "b"):
            node.world.see(manifest(name, container(cpu="3")))
    node.known(using("c", policy="single-numa-node", on_misalignment="wait"))
    refusal = node.world.engine.pods["job"].refusal
    assert refusal is not None
    assert refusal.facts["final"] == "never"
    assert "device gpu.example.com/n/d0 of claim c on NUMA node 0" in refusal.message
    assert "even an empty node would refuse it" in refusal.message


def test_one_that_waits_keeps_its_claim(tmp_path: Path) -> None:
    """S11, S22: the claim's node is full: it waits, the sentence names the device, and it gets in there."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api, waiting_limit=100.0, clock=lambda: 5.0)
    node.known(using("c", name="big", cpu="4", **STRICT))
    node.world.start("big")
    node.known(using("c", policy="single-numa-node", on_misalignment="wait"))
    refusal = node.world.engine.pods["job"].refusal
    assert refusal is not None
    assert "final" not in refusal.facts
    assert (
        "d1 of claim c on NUMA node 1, which cannot be chosen again; what else container app asks for"
        in refusal.message
    )
    node.world.end("big")
    node.world.engine.pods_gone(["big"])
    node.world.engine.reconcile()
    assert (node.on(), node.world.engine.pods["job"].refusal) == ("1", None)


def test_a_request_of_a_claim_is_what_the_container_has(tmp_path: Path) -> None:
    """Of a claim with several requests, and of a prioritised list, a container follows what it names."""
    api = Api(
        slices(device("d0", 0), device("d1", 1)), c=claim(result("d0", "small"), result("d1", "large/first"))
    )  # fmt: skip
    node = Node(tmp_path, api)
    body = using("c", **STRICT)
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c", "request": "large"}]
    node.known(body)
    assert node.on() == "1"
    assert [each.split("\t")[3] for each in node.world.engine.ledger.others["claims"]["job"]["app"]] == ["d1"]


def test_a_new_device_is_asked_for_and_a_burst_is_not(tmp_path: Path) -> None:
    """One LIST serves the pods that come together; a device that is not in it has the slices listed again."""
    api = Api(slices(device("d0", 0), device("d1", 1)), c=claim(result("d0")))
    node = Node(tmp_path, api)
    for number in range(3):
        node.known(using("c", name=f"p{number}", cpu="1"))
    assert api.asked.count("LIST resourceslices") == 1
    api.slices, api.claims["c"] = [slices(device("d0", 0), device("hot", 1), generation=2)], claim(result("hot"))
    node.time += 5.0
    node.known(using("c", **STRICT))
    assert (node.on(), api.asked.count("LIST resourceslices")) == ("1", 2)


def test_the_thread_goes_on_after_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody expected of one pod's claim ends no thread: the next pod is looked up, and the end is in time."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node, call = Node(tmp_path, api), api.call
    wrong = using("bad", name="wrong")

    def answer(method: str, path: str, **more: Any) -> Document:  # noqa: ANN401 - of Api
        if path.endswith("/bad"):
            raise RecursionError(path)
        return call(method, path, **more)

    monkeypatch.setattr(api, "call", answer)
    node.world.see(wrong, using("c", **STRICT))
    node.lookup.start()
    for body in (wrong, using("c", **STRICT)):
        node.lookup.pod_seen(body, seen(body))
    until(lambda: node.on() == "1", "the other pod")
    assert node.lookup.stop(PATIENCE)


def test_a_plan_keeps_a_pods_claims(tmp_path: Path) -> None:
    """What another policy would do is asked with the claim's device: the pod lies beside it, or is told why not."""
    api = Api(slices(device("d0", 0), device("d1", 1)), c=claim(result("d1")), two=claim(result("d0"), result("d1")))
    node = Node(tmp_path, api)
    node.known(using("c"))
    node.known(using("two", name="torn"))
    state = node.world.engine.snapshot
    then = state.node.with_topology(Policy.SINGLE_NUMA_NODE, None)
    found = {each.uid: each for each in what_if(WhatIf(state.node, then, state.ledger), repack=False).lines}
    assert (found["job"].change, str(found["job"].nodes_then)) == (Difference.SAME, "1")
    assert found["torn"].change is Difference.REFUSED
    assert "claim two" in found["torn"].why


def test_claims_of_pods_that_never_come_are_forgotten(tmp_path: Path) -> None:
    """Claims that were told before their pod, and the pod was gone at once: what is remembered stays bounded."""
    node = Node(tmp_path, Api(slices(device("d1", 1)), c=claim(result("d1"))))
    node.known(using("c", **STRICT))
    engine = node.world.engine
    for number in range(MOST_TOLD + 10):
        engine.claims_reported(f"ghost{number}", {"app": (ClaimDevice("c", DRIVER, "n", "d1"),)})
    remembered = engine.snapshot.device_tracker.claims
    assert (len(remembered) <= MOST_TOLD, "job" in remembered) == (True, True)


def test_s18_a_version_without_it_moves_nothing(tmp_path: Path) -> None:
    """Downgraded, or switched off again: the ledger is read, the pod keeps its CPUs, and the entry goes with it."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api)
    node.known(using("c", **STRICT))
    node.world.start("job")
    before = node.world.effective("job")
    store = node.world.store
    assert store.saved is not None
    store.saved = ledger_from_json(json.loads(json.dumps(ledger_to_json(store.saved))))
    older = World(tmp_path, store=store, pods=node.world.pods.values())
    older.see(using("c", **STRICT))
    older.engine.pods_listed({"job"})
    older.engine.reconcile()
    assert (older.effective("job"), older.recovered.losses) == (before, ())
    older.end("job")
    older.engine.pods_gone(["job"])
    assert not older.engine.ledger.others.get("claims")


def test_s17_release_in_the_middle_leaves_nobody_confined(tmp_path: Path) -> None:
    """A claim's pod runs, another's claim is just being looked up: every cgroup gets what its parent has."""
    api = Api(slices(device("d1", 1)), c=claim(result("d1")))
    node = Node(tmp_path, api)
    node.known(using("c", **STRICT))
    node.world.start("job")
    assert node.world.effective("job") != "0-7"
    api.away = True
    node.known(using("c", name="next", cpu="1"))
    node.world.engine.halted = True
    node.world.engine.release()
    assert node.world.effective("job") == "0-7"
    api.away = False
    node.turn(1.0)
    assert node.world.effective("job") == "0-7"


def test_world_is_the_flows(tmp_path: Path) -> None:
    """Without the setting the managers have no provider for claims."""
    assert all(each.name != "claims" for each in World(tmp_path).node().providers)
