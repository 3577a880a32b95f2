"""The gatekeeper among real servers: etcd, kube-apiserver, kube-controller-manager, the stock kube-scheduler (S23).

The gatekeeper is its own process with the token of its account, under the chart's rights and policies. It speaks
through a proxy that can hold a patch. `NUMALIGN_GATE_KILLS=100` kills a hundred leaders in place of three.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from agent.forecast.gate.values import GATE
from tests.cluster.api_proxy import AFTER, SPEC, STATUS, ApiProxy
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.gate_live import POLL, LiveGate
from tests.cluster.gate_rules import CASES, Broken, broken
from tests.cluster.gate_world import (
    ASKS,
    PODS,
    SPACE,
    SWITCH,
    PaperNodes,
    account,
    asking,
    condition,
    gates,
    inherit,
    install,
    nominated,
    scheduling,
    switched_on,
)
from tests.cluster.nodes import DEPLOY, STRATEGIC, SYSTEM
from tests.cluster.objects import Object, bind, cluster_role, rule
from tests.cluster.objects import account as account_of
from tests.patience import until

pytestmark = pytest.mark.cluster
KILLS = int(os.environ.get("NUMALIGN_GATE_KILLS", "3"))
LARGE = "1 socket x 2 nodes x 8 cores x 1 thread, 8G per node"
POINTS = ((STATUS, AFTER), (SPEC, "before"), (SPEC, AFTER))
"""Where a leader is killed: the nomination is done and unanswered; its release is not sent; that is unanswered."""


@pytest.fixture(scope="module")
def live(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGate]:
    """All servers, which the tests of this file share."""
    folder = tmp_path_factory.mktemp("gate")
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane(kube, folder / "plane"))
        account = install(cluster, folder / "account")
        cluster.start_scheduler(scheduling())
        cluster.start_controllers("job-controller", "deployment-controller", "replicaset-controller")
        nodes = stack.enter_context(PaperNodes(cluster, folder / "paper", period=0.3))
        made = LiveGate(cluster, account, folder, nodes, stack.enter_context(ApiProxy(cluster)))
        stack.callback(made.end)
        yield made


@pytest.fixture
def gate(live: LiveGate) -> Iterator[LiveGate]:
    """The same, without pods and nodes of an earlier test."""
    yield live
    live.clear()


def pair(gate: LiveGate, *names: str) -> tuple[str, str]:
    """Two nodes that both take a pod of four CPUs: scores prefer the second, the gatekeeper the first."""
    full, empty = names
    gate.nodes.add(full)
    gate.nodes.add(empty)
    gate.nodes.fill(full, 3)
    return full, empty


def test_a_pod_that_asks_is_bound_where_the_gatekeeper_chose(gate: LiveGate) -> None:
    """A pod that asks is gated by the policy, nominated, and bound to a node that scores alone do not take."""
    full, empty = pair(gate, "full", "empty")
    gate.leads()
    made = gate.cluster.create(asking("asked", 4))[0]
    assert gates(made) == [GATE]
    assert gate.runs("asked") == full
    assert gate.proxy.promised("asked") == [full]
    gate.delete("asked")
    until(lambda: not gate.nodes.holds(full, f"{SPACE}/asked"), "its end")
    assert gate.runs(gate.plain("plain", 4)) == empty


def test_a_node_that_would_refuse_is_avoided(gate: LiveGate) -> None:
    """Sums and scores prefer a node that refuses: a plain pod goes there, one that asked does not."""
    gate.nodes.add("takes")
    gate.nodes.add("refuses", LARGE)
    gate.nodes.fill("takes", 3)
    gate.nodes.fill("refuses", 5, 5)
    gate.leads()
    assert gate.runs(gate.ask("asked", 4)) == "takes"
    gate.delete("asked")
    gate.plain("plain", 4)
    until(lambda: gate.nodes.refused.get(f"{SPACE}/plain") == "refuses", lambda: f"{gate.nodes.landed}")


@pytest.mark.timeout(60 * KILLS + 300)
def test_s23_a_leader_that_is_killed_between_its_patches_leaves_no_phantom(gate: LiveGate) -> None:
    """Two seconds after the next replica leads no pod is nominated behind the gate, wherever the last one ended."""
    for name in ("a", "b", "c"):
        gate.nodes.add(name)
    gate.replica()
    took = [killed(gate, number, *POINTS[number % len(POINTS)]) for number in range(KILLS)]
    late = sorted(took)
    print(f"{KILLS} kills: phantoms saw {late[len(late) // 2]:.2f} s of the next leader, {late[-1]:.2f} s at most")


def killed(gate: LiveGate, number: int, resource: str, when: str) -> float:
    """Kill the leader at a point of three releases; seconds from the next one's begin to the last phantom."""
    leader = gate.leads()
    names = [f"killed-{number}-{each}" for each in range(3)]
    with gate.proxy.holding(resource, f"killed-{number}-", when) as hold:
        for name in names:
            gate.ask(name, 3)
        hold.reached(3)
        leader.end(signal.SIGKILL)
        gate.replica()
        assert gate.phantoms() == ({*names} if (resource, when) != (SPEC, AFTER) else set())
    inherit(gate.cluster)
    began = until(lambda: gate.leaders, "the next leader", pause=0.05)[0].led_at()
    last = began
    while time.time() < began + 2.0:
        if gate.abandoned():
            last = time.time()
        time.sleep(0.02)
    assert not gate.abandoned()
    for name in names:
        gate.runs(name)
    gate.delete(*names)
    print(f"kill {number}, {when} the server had {resource}: {last - began:.2f} s", flush=True)
    return last - began


# ---- R1 to R7


@pytest.fixture(scope="module")
def rules(live: LiveGate) -> dict[str, Broken]:
    """All rules, broken at once."""
    found = broken(live)
    live.clear()
    return found


NOMINATED = {"r2-later": ["r2-later", ""], "r4-taint": ["r4-taint"], "r5-twin": ["r5-twin"]}
"""Nominations that the gatekeeper wrote, where it wrote any."""
GATED = {"r1-foreign-gate", "r5-twin", "r5-foreign", "r6-refuses", "r7-not-ready"}


@pytest.mark.parametrize("case", CASES)
def test_s23_a_broken_rule_leaves_no_nomination_and_a_plain_pod_gets_the_room(
    rules: dict[str, Broken], case: str
) -> None:
    """Ten seconds after a rule was broken no field is left, and a pod that never asked runs on the node."""
    found = rules[case]
    assert found.left == []
    assert found.plain == case
    assert found.promised == NOMINATED.get(case, [])
    assert found.gated == (case in GATED)


def test_s23_a_release_that_another_policy_refuses_holds_no_room(gate: LiveGate) -> None:
    """The nomination is cleared at once and is not written again at once, and a plain pod gets the room."""
    gate.nodes.add("room")
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]
    kind: Object = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-change"}}
    never = [{"expression": "!oldObject.metadata.name.startsWith('frozen')"}]
    gate.cluster.create(
        {**kind, "kind": "ValidatingAdmissionPolicy",
         "spec": {"matchConstraints": {"resourceRules": rules}, "validations": never}},
        {**kind, "kind": "ValidatingAdmissionPolicyBinding",
         "spec": {"policyName": "no-change", "validationActions": ["Deny"]}},
    )  # fmt: skip
    gate.ask("frozen-first", 1, nodeSelector={"none": "none"}, annotations={})

    def refused() -> bool:
        try:
            gate.cluster.call("PATCH", f"{PODS}/frozen-first", {"metadata": {"labels": {"a": "b"}}}, kind=STRATEGIC)
        except ApiError:
            return True
        return False

    until(refused, "the policy", pause=POLL)
    gate.leads()
    gate.ask("frozen", 4)
    until(lambda: gate.proxy.promised("frozen") == ["room", ""], lambda: f"{gate.proxy.promised('frozen')}")
    assert gate.runs(gate.plain("plain", 4)) == "room"
    assert gate.proxy.promised("frozen") == ["room", ""]
    assert gate.gated("frozen")


# ---- two priorities


def test_no_pod_is_evicted_on_a_node_that_refuses_after_it(gate: LiveGate) -> None:
    """A full cluster: the scheduler evicts where the decision takes the pod, and elsewhere without the gatekeeper."""
    for name, value in (("lowest", 5), ("low", 10), ("high", 1000), ("highest", 5000)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        gate.cluster.create({**kind, "value": value})
    gate.nodes.add("helps")
    gate.nodes.add("refuses")
    gate.nodes.fill("helps", 3, priorityClassName="low")
    gate.nodes.fill("helps", 4, priorityClassName="highest")
    gate.nodes.fill("refuses", 2, 2, priorityClassName="highest")
    gate.nodes.fill("refuses", 1, 1, 1, priorityClassName="lowest")
    before = {each["metadata"]["name"] for each in gate.pods()}
    gate.leads()
    gate.ask("urgent", 3, priorityClassName="high")
    assert gate.runs("urgent") == "helps"
    after = {each["metadata"]["name"] for each in gate.pods()}
    assert before - after == {"on-helps-0-3"}
    assert gate.proxy.promised("urgent") == []
    gate.delete("urgent")
    gate.nodes.fill("helps", 3, priorityClassName="low")
    gate.plain("plain", 3, priorityClassName="high")
    until(lambda: gate.nodes.refused.get(f"{SPACE}/plain") == "refuses", lambda: f"{gate.nodes.landed}")


# ---- other gates and owners


def test_a_foreign_gate_is_left_to_its_queue(gate: LiveGate) -> None:
    """A pod with a queue's gate beside ours is not touched; when the queue admits it, it is nominated and bound."""
    gate.nodes.add("queued")
    gate.leads()
    queue = {"name": "kueue.x-k8s.io/admission"}
    gate.ask("queued-pod", 4, schedulingGates=[queue])
    assert gates(gate.pod("queued-pod")) == [queue["name"], GATE]
    time.sleep(1.0)
    assert gate.proxy.promised("queued-pod") == []
    assert gate.gated("queued-pod")
    admitted = {"spec": {"schedulingGates": [{**queue, "$patch": "delete"}]}}
    gate.cluster.call("PATCH", f"{PODS}/queued-pod", admitted, kind=STRATEGIC)
    assert gate.runs("queued-pod") == "queued"
    assert gate.proxy.promised("queued-pod") == ["queued"]


def template(cpu: int, notes: dict[str, str]) -> Object:
    """Of a workload's pods."""
    spec = asking("x", cpu)["spec"]
    return {"metadata": {"labels": {"app": "w"}, "annotations": notes}, "spec": spec}


def of_app(gate: LiveGate) -> list[Object]:
    """The pods of the workload."""
    return [each for each in gate.pods() if each["metadata"].get("labels", {}).get("app") == "w"]


def test_a_job_with_a_deadline_is_let_go_before_it(gate: LiveGate) -> None:
    """A Job that fits nowhere: its condition names the clock, and five seconds before that its gate is lifted."""
    gate.nodes.add("small")
    gate.nodes.fill("small", 2, 2)
    gate.leads()
    spec = template(3, ASKS)
    spec["spec"]["restartPolicy"] = "Never"
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "dated", "namespace": SPACE},
            "spec": {"activeDeadlineSeconds": 11, "backoffLimit": 0, "template": spec}}  # fmt: skip
    began = time.monotonic()
    gate.cluster.create(body)
    (made,) = until(lambda: of_app(gate), "the Job's pod")
    name = made["metadata"]["name"]
    assert gates(made) == [GATE]
    assert f"activeDeadlineSeconds of Job {SPACE}/dated" in gate.waits(name)
    until(lambda: not gate.gated(name), "the end of its wait")
    assert 4.0 < time.monotonic() - began < 9.0
    assert gate.proxy.promised(name) == []
    assert "affinity" not in gate.pod(name).get("spec", {})


def test_a_deployment_is_rolled_out_into_the_gate_and_out_of_it(gate: LiveGate) -> None:
    """The annotation in the template gates its pods; without it new pods are bound at once, and gated ones go."""
    gate.nodes.add("wide", LARGE)
    gate.leads()
    labels = {"matchLabels": {"app": "w"}}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {"replicas": 2, "selector": labels, "strategy": rolling, "template": template(3, ASKS)}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "rolled", "namespace": SPACE}}
    gate.cluster.create({**body, "spec": spec})

    def running(number: int, note: bool) -> bool:  # noqa: FBT001 - whether the template asks
        found = of_app(gate)
        there = [("numalign.io/gate" in each["metadata"]["annotations"], bool(each["spec"].get("nodeName")))
                 for each in found]  # fmt: skip
        return there == [(note, True)] * number

    def change(part: Object) -> None:
        path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/rolled"
        gate.cluster.call("PATCH", path, {"spec": part}, kind=STRATEGIC)

    until(lambda: running(2, note=True), lambda: f"{[each['status'] for each in of_app(gate)]}")
    assert all(gate.proxy.promised(each["metadata"]["name"]) == ["wide"] for each in of_app(gate))
    larger = template(9, ASKS)
    change({"template": larger})  # fits nowhere
    until(lambda: any(GATE in gates(each) for each in of_app(gate)), "a pod that waits")
    out: Object = {"metadata": {"annotations": {"numalign.io/gate": None}}}
    change({"template": {**out, "spec": {"containers": template(2, {})["spec"]["containers"]}}})
    until(lambda: running(2, note=False), lambda: f"{of_app(gate)}")


# ---- what goes wrong


def test_the_scheduler_is_restarted_while_a_pod_is_chosen(gate: LiveGate) -> None:
    """Kill -9 between the two patches: the pod is bound where it was nominated."""
    full, _ = pair(gate, "full", "empty")
    gate.leads()
    with gate.proxy.holding(SPEC, "chosen") as hold:
        gate.ask("chosen", 4)
        hold.reached()
        gate.cluster.kill("kube-scheduler")
        gate.restart_scheduler()
        probe = gate.plain("probe", 1, nodeSelector={"kubernetes.io/hostname": "empty"})
        gate.bound(probe)
        assert gate.phantoms() == {"chosen"}
    assert gate.runs("chosen") == full
    assert gate.proxy.promised("chosen") == [full]


def test_the_scheduler_is_away_when_a_pod_is_released(gate: LiveGate) -> None:
    """A nomination that stands for five seconds is cleared; the scheduler that comes back binds to a good node."""
    gate.nodes.add("takes")
    gate.nodes.add("refuses", LARGE)
    gate.nodes.fill("takes", 3)
    gate.nodes.fill("refuses", 5, 5)
    gate.leads()
    gate.cluster.kill("kube-scheduler")
    try:
        gate.ask("released", 4)
        until(lambda: not gate.gated("released"), "the release")
        began = time.monotonic()
        until(lambda: not nominated(gate.pod("released")), "the clearing")
        assert time.monotonic() - began < 8.0
        assert gate.proxy.promised("released") == ["takes", ""]
    finally:
        gate.restart_scheduler()
    assert gate.runs("released") == "takes"


def test_s23_the_api_server_is_away_between_the_patches(gate: LiveGate) -> None:
    """Kill -9 of kube-apiserver after the nomination: when it is back no phantom is left, and the pod runs."""
    pair(gate, "full", "empty")
    leader = gate.leads()
    with gate.proxy.holding(SPEC, "between") as hold:
        gate.ask("between", 4)
        hold.reached()
        gate.cluster.kill("kube-apiserver")
    time.sleep(1.0)
    gate.cluster.start_apiserver()
    gate.cluster.wait_ready()
    until(lambda: gate.node_of("between") or not leader.lives, "the pod, or the end of a leader without a lease")
    gate.leads()
    assert gate.runs("between") in ("full", "empty")
    assert not gate.phantoms()


def test_the_node_is_deleted_while_a_pod_is_chosen(gate: LiveGate) -> None:
    """The pod goes to the other node that takes it, and the one that has none waits without a nomination."""
    full, empty = pair(gate, "leaves", "stays")  # by name, too: watches may not be back yet
    leader = gate.leads()
    only = {"nodeSelector": {"kubernetes.io/hostname": full}}
    with gate.proxy.holding(SPEC, "deleted") as hold:
        gate.ask("deleted", 4)
        hold.reached()
        gate.nodes.remove(full)
    assert gate.proxy.promised("deleted") == [full]
    assert gate.runs("deleted") == empty
    until(lambda: leader.counted("elsewhere-barred") == 1, lambda: f"{leader.metrics()}")
    gate.nodes.add(full)
    with gate.proxy.holding(SPEC, "alone") as hold:
        gate.ask("alone", 3, **only)
        hold.reached()
        gate.nodes.remove(full)
    until(lambda: not nominated(gate.pod("alone")), "the end of its nomination", within=10)
    assert not gate.gated("alone")
    assert not gate.node_of("alone")


@pytest.mark.parametrize("hour", [3600, -3600])
def test_s23_a_gatekeeper_whose_clock_is_wrong_holds_no_pod(gate: LiveGate, hour: int) -> None:
    """An hour ahead it decides as ever; an hour behind it can decide nothing: no pod is gated, gates are lifted."""
    full, empty = pair(gate, "full", "empty")
    gate.end()
    gate.skewed(hour)
    by_hand = {"schedulingGates": [{"name": GATE}]}
    if hour > 0:
        gate.leads()
    else:
        until(lambda: gate.leaders, "a leader")
    gate.ask("asked", 4, **by_hand)
    assert gate.runs("asked") == (full if hour > 0 else empty)
    assert switched_on(gate.cluster) == (hour > 0)
    gate.end()


# ---- the end


def callers(gate: LiveGate) -> str:
    """The token of a user with the rights that the page names."""
    gate.cluster.ensure(
        account_of("caller", SYSTEM), bind("caller", "caller", SYSTEM),
        cluster_role(
            "caller", rule("", "configmaps", "list", "delete"), rule("", "pods", "list", "patch"),
            rule("", "pods/status", "patch"),
        ),
    )  # fmt: skip
    token = gate.cluster.token(SYSTEM, "caller")
    gate.cluster.wait_allowed(token, "patch", "pods", subresource="status")
    return token


def clean(gate: LiveGate) -> bool:
    """Whether no gate and no nomination of ours is left."""
    return not any(GATE in gates(each) or (nominated(each) and condition(each)) for each in gate.pods())


def test_s23_ungate_after_both_replicas_were_killed(gate: LiveGate) -> None:
    """With the caller's rights: the ConfigMap goes first, then gates and nominations of ours; no new pod is gated."""
    pair(gate, "full", "empty")
    leader = gate.leads()
    other = gate.replica()
    for number in range(3):
        gate.ask(f"waits-{number}", 9)
    gate.waits("waits-2")
    with gate.proxy.holding(SPEC, "phantom") as hold:
        gate.ask("phantom-0", 3)
        gate.ask("phantom-1", 3)
        hold.reached(2)
        for each in (leader, other):
            each.end(signal.SIGKILL)
    assert gate.phantoms() == {"phantom-0", "phantom-1"}
    assert switched_on(gate.cluster)
    token, before = callers(gate), len(gate.proxy.asked)
    code, said, complaints = gate.ungate(token)
    assert (code, said["left"], said["lifted"], said["cleared"]) == (0, {}, 5, 2), complaints
    first = gate.proxy.asked[before]
    assert (first.verb, first.resource, first.key) == ("DELETE", "configmaps", f"{SYSTEM}/{SWITCH}")
    assert clean(gate)
    assert gates(gate.cluster.create(asking("later"))[0]) == []
    assert all(map(gate.bound, ("phantom-0", "phantom-1", "later")))


def test_s23_uninstall_in_the_middle_leaves_no_gate(gate: LiveGate) -> None:
    """Pods come all the time and both replicas live: the chart's hook, then their end, leave nothing of ours."""
    gate.nodes.add("wide", LARGE)
    gate.nodes.add("narrow")
    gate.leads()
    gate.replica()
    over = threading.Event()

    def churn() -> None:
        for number in range(1000):
            if over.wait(0.05):
                return
            gate.ask(f"churn-{number}", (1, 2, 9)[number % 3])
            if number > 8:
                gate.delete(f"churn-{number - 8}")

    coming = threading.Thread(target=churn)
    coming.start()
    try:
        time.sleep(1.0)
        folder = account(gate.cluster, gate.folder / "hook", "numalign-ungate")
        code, said, complaints = gate.ungate((folder / "token").read_text(), "--policy", "--namespace", SYSTEM)
        gate.end()
        made = len(gate.proxy.asked)
        time.sleep(0.5)
    finally:
        over.set()
        coming.join(30)
        gate.cluster.ensure(*yaml.safe_load_all((DEPLOY / "access/gatekeeper.yaml").read_text()))
    assert (code, said["left"]) == (0, {}), complaints
    assert clean(gate)
    assert not switched_on(gate.cluster)
    assert len(gate.proxy.asked) == made
