"""Defect D19 (kubernetes issues 94220, 110306, 123816): a container is placed with a look at those after it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.admission.ahead import LOOKS
from agent.core.admission.node import Node
from agent.core.admission.pod import Admission, Step
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import MergeRule
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Outcome, Reason, Refused
from agent.model.pod import Container, Pod
from tests.unit.test_firm import STATIC
from tests.world.nodes import managers_of
from tests.world.pods import APP, INIT, SIDECAR, container, pod

GIB, MIB = 2**30, 2**20
GPU = "numalign.io/gpu"
STRICT = ("restricted", "single-numa-node")
ALL = ("best-effort", *STRICT)
TWO = "2 sockets x 1 node x 16 cores, 64G per node"
FOUR = "2 sockets x 2 nodes x 4 cores, 8G per node, distance 10 12 21"


def node_of(machine: str, policy: str, **body: Any) -> Node:  # noqa: ANN401 - fields of a settings document
    """A machine whose first three CPUs are reserved, unless the settings say otherwise."""
    devices = [{"resource": GPU, "class": "03", "namespaces": ["*"]}]
    return managers_of(
        machine, {"topologyManagerPolicy": policy, "reservedSystemCPUs": "0-2", "devices": devices, **body}
    )


def init(cpus: float, **more: Any) -> Container:  # noqa: ANN401 - what a container asks for
    """An init container."""
    return container("init", INIT, cpus=cpus, **more)


def app(cpus: float, name: str = "app", **more: Any) -> Container:  # noqa: ANN401 - what a container asks for
    """An app container."""
    return container(name, APP, cpus=cpus, **more)


def where(node: Node, outcome: Outcome, uid: str = "p") -> dict[str, str]:
    """The NUMA nodes of each container's CPUs; "refused" where the pod is not in, "!" behind what is not aligned."""
    if isinstance(outcome, Refused):
        return {"": "refused"}
    ledger = outcome.ledger
    found = {}
    for each in ledger.pods[uid].pod.containers:
        cpus = ledger.grant(uid, each.name).cpus
        good = ledger.pods[uid].aligned[each.name]
        found[each.name] = (str(node.machine.nodes_of(cpus)) if cpus else "shared") + ("" if good else "!")
    return found


def come(node: Node, *containers: Container, ledger: Ledger | None = None) -> dict[str, str]:
    """Where the containers of a pod go; by default on an empty node."""
    return where(node, node.admit(node.start() if ledger is None else ledger, pod("p", *containers)))


def filled(node: Node, *sizes: tuple[int, int]) -> Ledger:
    """A ledger where some CPUs of some NUMA nodes are taken: (node, CPUs)."""
    ledger = node.start()
    for place, count in sizes:
        free = node.cpu_provider().free(ledger.cpus) & node.machine.by_node[place].cpus
        taken = type(free).from_ids(sorted(free)[:count])
        other = pod(f"other{place}", container("c", cpus=count))
        cpus = ledger.cpus
        ledger = Ledger(
            ledger.machine,
            type(cpus)(cpus.shared - taken, {**cpus.assigned, other.uid: {"c": taken}}),
            ledger.memory, ledger.devices, ledger.pods,
        )  # fmt: skip
    return ledger


@pytest.mark.parametrize("policy", ALL)
def test_an_init_container_leaves_the_app_its_numa_node(policy: str) -> None:
    """Issue 110306: 13 CPUs are free on node 0 and 16 on node 1; init 1, app 14: both on node 1."""
    assert come(node_of(TWO, policy), init(1), app(14)) == {"init": "1", "app": "1"}


@pytest.mark.parametrize("policy", ALL)
def test_two_pods_fit_on_two_numa_nodes(policy: str) -> None:
    """Issue 123816: two pods of init 1 and app 26, 32 CPUs each node: the second has node 1, which is empty."""
    node = node_of("2 sockets x 1 node x 32 cores, 64G per node", policy, reservedSystemCPUs="0-1")
    first = node.admit(node.start(), pod("first", init(1), app(26)))
    assert where(node, first, "first") == {"init": "0", "app": "0"}
    assert come(node, init(1), app(26), ledger=first.ledger) == {"init": "1", "app": "1"}


@pytest.mark.parametrize("mode", ["kubelet-1.34", "kubelet-1.37"])
def test_as_a_kubelet_the_init_container_decides(mode: str) -> None:
    """The same pod under `compatibility: kubelet`: refused, or split, as by the kubelet."""
    for policy, found in (("single-numa-node", {"": "refused"}), ("best-effort", {"init": "0", "app": "0-1!"})):
        assert come(node_of(TWO, policy, compatibility=mode), init(1), app(14)) == found


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize(
    ("containers", "found"),
    [
        ((init(1), container("side", SIDECAR, cpus=14), app(1)), {"init": "1", "side": "1", "app": "0"}),
        ((init(1), container("second", INIT, cpus=2), app(14)), {"init": "1", "second": "1", "app": "1"}),
        ((init(0.5), app(14)), {"init": "shared", "app": "1"}),
        ((app(3, "small"), app(12, "exact"), app(14, "large")), {"": "refused"}),
        ((app(1, "small"), app(13, "exact"), app(14, "large")), {"small": "1", "exact": "0", "large": "1"}),
        ((app(14, "large"), app(13, "exact"), app(1, "small")), {"large": "1", "exact": "0", "small": "1"}),
    ],
    ids=["sidecar", "two inits", "shared init", "too much", "a small app first", "a small app last"],
)
def test_every_kind_of_container_is_looked_at(
    policy: str, containers: tuple[Container, ...], found: dict[str, str]
) -> None:
    """Init before sidecar, init before init, and app before app: each leaves the later ones theirs."""
    seen = come(node_of(TWO, policy), *containers)
    if found == {"": "refused"} and policy == "best-effort":
        assert seen == {"small": "0", "exact": "1", "large": "0-1!"}  # no choice aligns all three, so the first
    else:
        assert seen == found


@pytest.mark.parametrize("policy", ALL)
def test_a_device_of_a_later_container_decides(policy: str) -> None:
    """The only GPU is on node 1: the init container's CPU, too, though node 0 comes first."""
    node = node_of(f"{TWO}, gpu on 1", policy)
    assert come(node, init(1), app(4, limits={GPU: 1})) == {"init": "1", "app": "1"}


@pytest.mark.parametrize("policy", ALL)
def test_a_device_of_an_init_container_is_one_of_the_apps(policy: str) -> None:
    """One GPU on node 0, two on node 1; the init container asks for one, the app for two: all on node 1."""
    node = node_of(f"{TWO}, gpu on 0, 2 gpus on 1", policy)
    outcome = node.admit(node.start(), pod("p", init(0.5, limits={GPU: 1}), app(4, limits={GPU: 2})))
    assert where(node, outcome) == {"init": "shared", "app": "1"}
    held = outcome.ledger.devices.held["p"]
    assert set(held["init"][GPU]) < set(held["app"][GPU])
    assert len(held["app"][GPU]) == 2


@pytest.mark.parametrize("policy", STRICT)
def test_memory_and_huge_pages_of_a_later_container_decide(policy: str) -> None:
    """Memory: node 1 alone has 6 GiB left. Huge pages: node 1 alone has any. The init container goes there, too."""
    node = node_of("2 sockets x 1 node x 8 cores, 8G per node, 256 2Mi pages on 1", policy, **STATIC)
    first = node.admit(node.start(), pod("other", app(1, memory=4 * GIB)))
    assert come(node, init(1, memory=MIB), app(2, memory=6 * GIB), ledger=first.ledger) == {"init": "1", "app": "1"}
    assert come(node, init(1, memory=MIB), app(2, memory=MIB, huge2m=64 * MIB)) == {"init": "1", "app": "1"}


def test_an_app_on_two_numa_nodes_decides_which_two() -> None:
    """8 CPUs need two nodes, and node 0 has one left: nodes 1 and 2, and with prefer-closest-numa-nodes 2 and 3."""
    for policy in ("best-effort", "restricted"):
        assert come(node_of(FOUR, policy), init(1), app(8)) == {"init": "1", "app": "1-2"}
        node = node_of(FOUR, policy, topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"})
        assert come(node, init(1), app(8)) == {"init": "2", "app": "2-3"}


def test_of_equal_places_the_first_by_the_merges_order_is_taken() -> None:
    """Nodes 1, 2 and 3 would all do for init and app: the lowest number is taken, each time."""
    node = node_of(FOUR, "single-numa-node")
    assert {tuple(come(node, init(1), app(4)).values()) for _ in range(3)} == {("1", "1")}


def test_best_effort_keeps_the_cpus_together_where_no_choice_aligns_all() -> None:
    """The GPU's node has 3 CPUs left: the app is not aligned, but its CPUs are not split for the init container's."""
    node = node_of(f"{TWO}, gpu on 0", "best-effort")
    ledger = filled(node, (0, 10))
    found = come(node, init(1), app(14, limits={GPU: 1}), ledger=ledger)
    assert found == {"init": "1", "app": "1!"}


def test_what_conflicts_in_every_choice_is_refused_and_the_init_container_is_named() -> None:
    """A GPU holds the init container on node 0, a NIC the app on node 1: no choice serves both, as told."""
    nic = "numalign.io/nic"
    devices = [{"resource": name, "class": kind, "namespaces": ["*"]} for name, kind in ((nic, "02"), (GPU, "03"))]
    node = node_of(f"{TWO}, gpu on 0, nic on 1", "restricted", devices=devices)
    newcomer = pod("p", init(1, limits={GPU: 1}), app(4, limits={nic: 1}))
    outcome = node.admit(node.start(), newcomer)
    assert isinstance(outcome, Refused)
    assert (outcome.refusal.reason, outcome.refusal.container) == (Reason.TOPOLOGY, "app")
    said = explain(node, node.start(), newcomer, standing=PodStanding(hypothetical=True), search=False)
    assert said.summary == (
        "default/p would be refused (TopologyAffinityError): container app: its parts fit on as few nodes as they "
        "should, but not on the same ones: 1 numalign.io/nic fits on NUMA node 1 and 4 CPUs, which must include "
        "CPU 3 of init container init on NUMA node 0, fit on NUMA node 0"
    )


@pytest.mark.parametrize("policy", ALL)
def test_explain_says_which_later_container_decided(policy: str) -> None:
    """The merge names the container, what it asks for and the node set that would have come first."""
    node = node_of(f"{TWO}, gpu on 1", policy)
    newcomer = pod("p", init(1), app(4, limits={GPU: 1}))
    found = explain(node, node.start(), newcomer, standing=PodStanding(hypothetical=True), search=False)
    text = "container app needs 4 CPUs and 1 numalign.io/gpu, and would be placed worse with this one on NUMA node 0"
    assert found.reasons == (
        f"why NUMA node 1 (container init): {text}", "why NUMA node 1 (container app): only this one suits all of it",
    )  # fmt: skip
    assert [merge.rule for merge in found.merges] == [MergeRule.AHEAD, MergeRule.ONLY]
    said = found.merges[0].hint_lists[-1]
    assert (said.provider, said.sentence) == (
        "later containers", "container app, which comes later, leaves {1} to it",
    )  # fmt: skip


def test_on_many_numa_nodes_explain_says_it_as_well() -> None:
    """With more than eight nodes no hints are listed; the sentences are the same."""
    node = node_of("4 sockets x 4 nodes x 4 cores, 8G per node, gpu on 13", "restricted")
    newcomer = pod("p", init(1), app(2, limits={GPU: 1}))
    found = explain(node, node.start(), newcomer, standing=PodStanding(hypothetical=True), search=False)
    assert (found.merges[0].rule, str(found.merges[0].winner)) == (MergeRule.AHEAD, "13")
    assert found.merges[0].hint_lists[-1].sentence == "container app, which comes later, leaves {13} to it"


def test_the_trace_is_that_of_the_placement_that_counts() -> None:
    """One step for each container, none of the choices that were tried."""
    node, steps = node_of(TWO, "restricted"), list[Step]()
    node.admit(node.start(), pod("p", init(1), app(14)), trace=steps.append)
    assert [(step.container, str(step.merged.hint.nodes)) for step in steps] == [("init", "1"), ("app", "1")]


@pytest.mark.parametrize(
    ("containers", "merges"),
    [((app(14),), 1), ((init(1), app(13)), 2), ((app(17),), 1), ((init(1), app(17)), 3)],
    ids=["one container", "as the kubelet", "one container, refused", "refused for itself"],
)
def test_what_needs_no_look_ahead_costs_none(
    monkeypatch: pytest.MonkeyPatch, containers: tuple[Container, ...], merges: int
) -> None:
    """One merge for each container where the kubelet's placement is good; one more where a container fits nowhere."""
    asked = counted(monkeypatch)
    node = node_of(TWO, "single-numa-node")
    node.admit(node.start(), pod("p", *containers))
    assert len(asked) == merges


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen NUMA nodes and forty containers that do not go together: it ends, with the kubelet's refusal."""
    asked = counted(monkeypatch)
    node = node_of("4 sockets x 4 nodes x 4 cores, 8G per node", "restricted")
    many = [app(2 if number % 2 else 3, f"c{number}") for number in range(40)]
    outcome = node.admit(node.start(), pod("p", *many))
    assert isinstance(outcome, Refused)
    assert LOOKS < len(asked) <= LOOKS + 2 * len(many)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The merges that are made from now on."""
    asked, real = list[str](), Admission.merge

    def merge(self: Admission, *args: Any) -> Any:  # noqa: ANN401 - as the method
        asked.append("")
        return real(self, *args)

    monkeypatch.setattr(Admission, "merge", merge)
    return asked


def test_a_newcomer_changes_nothing_of_what_others_hold() -> None:
    """The choices that were tried leave no trace in the ledger: the pod's own grants are all that is new."""
    node = node_of(TWO, "restricted")
    before = node.admit(node.start(), pod("other", app(2))).ledger
    outcome = node.admit(before, pod("p", init(1), app(14)))
    assert isinstance(outcome, Admitted)
    assert node.release(outcome.ledger, "p") == before


def test_a_pod_that_is_refused_leaves_the_ledger_as_it_was() -> None:
    """Refused after a search: nothing is held."""
    node = node_of(TWO, "restricted")
    outcome = node.admit(node.start(), refused := pod("p", app(3, "a"), app(12, "b"), app(14, "c")))
    assert isinstance(outcome, Refused)
    assert outcome.ledger == node.start()
    assert isinstance(refused, Pod)
