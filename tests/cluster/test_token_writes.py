"""Finding 19, its brothers: annotations, deadlines, topologies, Events, evictions, deletions, and the hook."""

from __future__ import annotations

import re

import pytest
import yaml

from agent.core.request.annotations import RELEASE, RELEASED
from agent.model.notes import MOST_TO_TOUCH, OURS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import DEPLOY, MERGE, STRATEGIC, SYSTEM
from tests.cluster.objects import Object, pod
from tests.cluster.stolen import Stolen

pytestmark = pytest.mark.cluster
ASKS = "policy", "scope", "on-misalignment", "cpu-options", "devices", "align", "pin", "move-memory", "anything-else"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def stolen(cluster: ControlPlane) -> Stolen:
    """The token of the agent of node others."""
    return Stolen(cluster, "others")


def note(key: str, value: str | None = "x") -> Object:
    """A patch of one annotation of ours."""
    return {"metadata": {"annotations": {f"numalign.io/{key}": value}}}


def condition(kind: str = "numalign.io/Aligned", status: str = "False") -> Object:
    """A patch of one condition."""
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "R", "message": "m"}]}}


def test_the_agents_own_words_pass(stolen: Stolen) -> None:
    """Its annotations and condition together, their removal, the deadline: on a pod that is being deleted, too."""
    stolen.create("own", terminationGracePeriodSeconds=60)
    path = stolen.path("own")
    for _ in range(2):
        words = {"metadata": {"annotations": dict.fromkeys(OURS, "x")}, **condition()}
        stored = stolen.call("PATCH", f"{path}/status", words, STRATEGIC)
        assert len(stored["metadata"]["annotations"]) == len(OURS)
        stored = stolen.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}, **note("failed", "y")})
        assert stored["spec"]["activeDeadlineSeconds"] == 1
        nothing: Object = {"metadata": {"annotations": dict.fromkeys(OURS)}}
        nothing["status"] = {"conditions": [{"type": "numalign.io/Aligned", "$patch": "delete"}]}
        stored = stolen.call("PATCH", f"{path}/status", nothing, STRATEGIC)
        assert "annotations" not in stored["metadata"]
        assert "conditions" not in stored["status"]
        stolen.cluster.call("DELETE", path)


def crowded(stolen: Stolen, name: str, number: int) -> str:
    """A pod with so many of a tenant's annotations; its path."""
    body = pod(name, stolen.name, space=stolen.space)
    body["metadata"]["annotations"] = {f"{each:x}": "" for each in range(number)}
    stolen.cluster.create(body)
    return stolen.path(name)


def test_a_pod_with_many_annotations_is_still_told(stolen: Stolen) -> None:
    """As many as the agent writes to: told, ended, and nothing of the tenant's is changed."""
    path = crowded(stolen, "many", MOST_TO_TOUCH - len(OURS))
    words = {"metadata": {"annotations": dict.fromkeys(OURS, "x")}, **condition()}
    stolen.call("PATCH", f"{path}/status", words, STRATEGIC)
    stolen.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}})
    assert stolen.refusal("PATCH", path, {"metadata": {"annotations": {"0": "x"}}}).policy


def test_a_pod_full_of_annotations_costs_the_policy_nothing(stolen: Stolen) -> None:
    """Beyond that no annotation is looked at: a rule of its own says no; the deadline and the condition pass."""
    path = crowded(stolen, "full", 20_000)
    for patch in (
        note("cpus", "2"),
        {"metadata": {"annotations": {"0": "x"}}},
        {"metadata": {"annotations": {"0": None}}},
    ):
        answer = stolen.refusal("PATCH", path, patch)
        assert f"more than {MOST_TO_TOUCH}" in answer.text, answer
        assert "may only change annotations" not in answer.text, "nobody looked at each"
    stolen.call("PATCH", f"{path}/status", condition(), STRATEGIC)
    stolen.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}})
    assert stolen.refusal("PATCH", path, {"metadata": {"labels": {"x": "y"}}}).policy


def test_the_policy_and_the_agent_have_one_bound() -> None:
    """A pod that the agent writes to is one that the policy lets it write to."""
    policy = next(yaml.safe_load_all((DEPLOY / "access/admission-policy.yaml").read_text()))
    rules = " ".join(each["expression"] for each in policy["spec"]["validations"])
    assert set(re.findall(r"size\(variables\.annotations\) (?:<=|>) (\d+)", rules)) == {str(MOST_TO_TOUCH)}


def test_the_policy_knows_every_word_of_the_agent() -> None:
    """An annotation that the agent learns to write is one that the policy lets through, or nobody would be told."""
    policy = next(yaml.safe_load_all((DEPLOY / "access/admission-policy.yaml").read_text()))
    ours = next(each["expression"] for each in policy["spec"]["variables"] if each["name"] == "ours")
    assert set(re.findall(r"'(numalign\.io/[^']+)'", ours)) == OURS | {RELEASE, RELEASED}


@pytest.mark.parametrize("where", ["", "/status"])
def test_a_tenants_asks_are_not_the_agents(stolen: Stolen, where: str) -> None:
    """Of numalign.io/ the token writes what the agent writes: no ask of a pod's owner, nothing that nobody knows."""
    stolen.cluster.ensure(pod("asks", stolen.name, space=stolen.space))
    path = stolen.path("asks")
    for key in (*ASKS, "release", "released"):
        assert stolen.refusal("PATCH", path + where, note(key)).policy, key
    stolen.cluster.call("PATCH", path, note("pin", "false"), kind=MERGE)
    for value in (None, "true"):
        assert stolen.refusal("PATCH", path + where, note("pin", value)).policy
    stolen.cluster.call("PATCH", path, note("pin", None), kind=MERGE)


def test_only_the_agents_own_pod_is_released(stolen: Stolen) -> None:
    """It answers the request on its own pod alone, and writes no request: that is the uninstallation's."""
    own, other = f"agent-{stolen.name}", f"second-{stolen.name}"
    stolen.cluster.create(pod(other, stolen.name, space=SYSTEM, serviceAccountName="numalign"))
    stored = stolen.call("PATCH", f"{stolen.path(own, SYSTEM)}/status", note("released", "{}"))
    assert stored["metadata"]["annotations"]["numalign.io/released"] == "{}"
    assert stolen.refusal("PATCH", f"{stolen.path(other, SYSTEM)}/status", note("released", "{}")).policy
    assert stolen.refusal("PATCH", f"{stolen.path(own, SYSTEM)}/status", note("release")).policy


def test_a_deadline_is_one_second_and_stays(stolen: Stolen) -> None:
    """Set to 1 where there is none, or by its owner another; never to anything else, never taken away."""
    stolen.create("plain")
    stolen.create("due", activeDeadlineSeconds=600)
    plain, due = stolen.path("plain"), stolen.path("due")
    for path, seconds in ((plain, 2), (plain, 0), (due, 599), (due, None), (due, -1)):
        answer = stolen.refusal("PATCH", path, {"spec": {"activeDeadlineSeconds": seconds}})
        assert answer.status == 422, (path, seconds, answer)
    stolen.call("PATCH", due, note("cpus"))
    assert stolen.call("PATCH", due, {"spec": {"activeDeadlineSeconds": 1}})["spec"]["activeDeadlineSeconds"] == 1


def test_nobody_is_ended_whom_the_agent_leaves_alone(stolen: Stolen) -> None:
    """Pods of kube-system and the agents' namespace, critical and static ones get words, and no deadline."""
    mirror = pod("static", stolen.name, space=stolen.space)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    critical = pod("critical", stolen.name, space="kube-system", priorityClassName="system-node-critical")
    stolen.cluster.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    stolen.cluster.create(mirror, critical, pod("dns", stolen.name, space="kube-system"))
    own = stolen.path(f"agent-{stolen.name}", SYSTEM)
    for path in (stolen.path("static"), *(stolen.path(each, "kube-system") for each in ("critical", "dns")), own):
        stolen.call("PATCH", f"{path}/status", {**note("cpus"), **condition()}, STRATEGIC)
        assert "leaves alone" in stolen.refusal("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}}).text


@pytest.mark.parametrize(
    "kind", ["Ready", "ContainersReady", "PodScheduled", "numalign.io/Other", "DisruptionTarget"]
)
def test_one_condition_only(stolen: Stolen, kind: str) -> None:
    """Neither added nor changed nor removed, whoever made it."""
    stolen.cluster.ensure(pod("conditions", stolen.name, space=stolen.space))
    path = f"{stolen.path('conditions')}/status"
    assert stolen.refusal("PATCH", path, condition(kind), STRATEGIC).policy
    stolen.cluster.call("PATCH", path, condition(kind), kind=STRATEGIC)
    assert stolen.refusal("PATCH", path, condition(kind, "True"), STRATEGIC).policy
    gone = {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}
    assert stolen.refusal("PATCH", path, gone, STRATEGIC).policy
    assert stolen.refusal("PATCH", path, {"status": {"conditions": []}}).policy


def topology(name: str, **metadata: object) -> Object:
    """A NodeResourceTopology."""
    zone = {"name": "node-0", "type": "Node", "resources": []}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": name, **metadata}, "topologyPolicies": ["None"], "zones": [zone],
    }  # fmt: skip


def test_no_other_nodes_topology(stolen: Stolen) -> None:
    """Created, updated, patched, deleted: the object of its own node only; and no finalizer."""
    own, other = f"{TOPOLOGIES}/{stolen.name}", f"{TOPOLOGIES}/{stolen.other}"
    finalizers = {"finalizers": ["example.com/for-ever"]}
    assert stolen.refusal("POST", TOPOLOGIES, topology(stolen.name, **finalizers)).policy
    stolen.call("POST", TOPOLOGIES, topology(stolen.name))
    assert stolen.refusal("POST", TOPOLOGIES, topology(stolen.other)).policy
    stolen.cluster.create(topology(stolen.other))
    body = stolen.cluster.call("GET", other)
    assert stolen.refusal("PUT", other, {**body, "zones": []}).status == 403, "RBAC gives no update"
    owner = {"apiVersion": "v1", "kind": "Node", "name": stolen.name, "uid": "0b1c"}
    patches: list[Object] = [
        {"zones": []},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"ownerReferences": [owner]}},
    ]
    for patch in patches:
        assert stolen.refusal("PATCH", other, patch).policy, patch
    applied = f"{other}?fieldManager=numalign&force=true"
    assert stolen.refusal("PATCH", applied, topology(stolen.other), "application/apply-patch+yaml").policy
    assert stolen.refusal("DELETE", other).policy
    assert stolen.refusal("DELETE", TOPOLOGIES).status == 403
    assert stolen.refusal("PATCH", own, {"metadata": finalizers}).policy
    assert stolen.cluster.call("GET", other)["zones"] == body["zones"]
    assert stolen.refusal("GET", TOPOLOGIES).status == 403, "nor are they listed"
    stolen.cluster.call("PATCH", own, {"metadata": finalizers}, kind=MERGE)
    stolen.call("PATCH", own, {"zones": []})  # somebody else's finalizer stops no word of ours
    stolen.cluster.call("PATCH", own, {"metadata": {"finalizers": []}}, kind=MERGE)
    stolen.call("DELETE", own)


def event(stolen: Stolen, **more: object) -> Object:
    """An Event as the agent records it, but for some fields; None leaves one out."""
    metadata = more.pop("metadata", {})
    body = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "e.", "namespace": "default", **metadata},  # type: ignore[dict-item] # JSON
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": "p", "namespace": "default"},
        "source": {"component": "numalign", "host": stolen.name}, "reportingComponent": "numalign.io/agent",
        "reportingInstance": stolen.name, "message": "m", "reason": "R", "type": "Normal", **more,
    }  # fmt: skip
    return {key: value for key, value in body.items() if value is not None}


def test_events_are_the_agents_own(stolen: Stolen) -> None:
    """In its own name, of its own node, about a pod or its Node: no other reporter's words, and none that stays."""
    this = {"kind": "Node", "apiVersion": "v1", "name": stolen.name, "namespace": ""}
    for passes in (event(stolen), event(stolen, involvedObject={**this, "namespace": "default"})):
        stolen.call("POST", EVENTS, passes)
    wrong: list[dict[str, object]] = [
        {"source": {"component": "kubelet", "host": stolen.name}},
        {"source": {"component": "numalign", "host": stolen.other}},
        {"source": {"component": "numalign"}}, {"source": None},
        {"reportingComponent": "kubelet"}, {"reportingComponent": None},
        {"reportingInstance": stolen.other}, {"reportingInstance": None},
        {"involvedObject": {**this, "namespace": "default", "name": stolen.other}},
        {"involvedObject": {"kind": "Secret", "apiVersion": "v1", "name": "s", "namespace": "default"}},
        {"metadata": {"finalizers": ["example.com/for-ever"]}},
    ]  # fmt: skip
    for more in wrong:
        assert stolen.refusal("POST", EVENTS, event(stolen, **more)).policy, more
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    assert stolen.refusal("POST", path, {}).status == 403, "RBAC knows the other API of Events as another right"


def test_a_token_of_no_node_writes_nothing_of_all_this(stolen: Stolen) -> None:
    """Not bound to a pod, it names no node: no words, no topology, no Event."""
    stolen.cluster.ensure(pod("loose", stolen.name, space=stolen.space))
    writes = (
        ("PATCH", f"{stolen.path('loose')}/status", note("cpus")), ("POST", TOPOLOGIES, topology(stolen.name)),
        ("POST", EVENTS, event(stolen)), ("PATCH", stolen.path("loose"), {"spec": {"activeDeadlineSeconds": 1}}),
    )  # fmt: skip
    for method, path, body in writes:
        answer = stolen.refusal(method, path, body, token=stolen.loose)
        assert "names no node" in answer.text, answer


def eviction(name: str, space: str) -> Object:
    """Of a pod."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}


def test_evictions(stolen: Stolen) -> None:
    """Without the switch none; with it none of kube-system or the agents' namespace, none by a token of no node."""
    stolen.cluster.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    stolen.create("evicted")
    stolen.cluster.create(pod("guard", stolen.name, space="kube-system"))
    path = f"{stolen.path('evicted')}/eviction"
    assert stolen.refusal("POST", path, eviction("evicted", stolen.space)).status == 403
    stolen.switch("eviction")
    try:
        for name, space in (("guard", "kube-system"), (f"agent-{stolen.name}", SYSTEM)):
            answer = stolen.refusal("POST", f"{stolen.path(name, space)}/eviction", eviction(name, space))
            assert "leaves alone" in answer.text, answer
        answer = stolen.refusal("POST", path, eviction("evicted", stolen.space), token=stolen.loose)
        assert "names no node" in answer.text, answer
        stolen.call("POST", path, eviction("evicted", stolen.space))
    finally:
        stolen.switch()
    assert stolen.refusal("DELETE", stolen.path("evicted")).status in {403, 404}


def test_deletions(stolen: Stolen) -> None:
    """With the switch: no pod that runs, none of another node, no collection, none that is left alone."""
    stolen.create("runs")
    stolen.create("elsewhere", stolen.other)
    stolen.switch("cleanup")
    try:
        for name in ("runs", "elsewhere"):
            assert stolen.refusal("DELETE", stolen.path(name)).policy
        assert stolen.refusal("DELETE", stolen.path()).status == 403
        failed = pod("failed", stolen.name, space="kube-system")
        (stored,) = stolen.cluster.create(failed)
        words = {**note("failed", stored["metadata"]["uid"]), **condition()}
        words["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
        path = stolen.path("failed", "kube-system")
        stolen.cluster.call("PATCH", f"{path}/status", words, kind=STRATEGIC)
        assert stolen.refusal("DELETE", path).policy
    finally:
        stolen.switch()


def test_the_hooks_token_asks_and_nothing_else(stolen: Stolen) -> None:
    """The account of the uninstallation: one annotation of the agents' pods, no condition, phase or label.

    Pods of other namespaces it lists, to know which nodes an agent has touched, and gets none by name.
    """
    stolen.cluster.ensure(*yaml.safe_load_all((DEPLOY / "access/rbac-uninstall.yaml").read_text()))
    token = stolen.cluster.token(SYSTEM, "numalign-uninstall")
    path = f"{stolen.path(f'agent-{stolen.name}', SYSTEM)}/status"
    stolen.call("PATCH", path, note("release", "r1"), token=token)
    stolen.call("PATCH", path, note("release", None), token=token)
    wrong = [note(each, "the hook's") for each in ("released", "cpus", "assignment", "pin")]
    wrong += [{"metadata": {"labels": {"a": "b"}}}, {"metadata": {"annotations": {"example.com/a": "b"}}}]
    wrong += [{"status": {"phase": "Failed"}}, condition(status="Unknown"), condition("Ready")]
    for patch in wrong:
        assert stolen.refusal("PATCH", path, patch, token=token).policy, patch
    assert stolen.refusal(
        "PATCH", f"{stolen.path()}/beside-{stolen.name}/status", note("release"), token=token
    ).status
    for method, where in (
        ("DELETE", path.removesuffix("/status")),
        ("GET", "/api/v1/secrets"),
        ("GET", stolen.path(f"beside-{stolen.name}")),
        ("GET", "/api/v1/pods?watch=true&timeoutSeconds=1"),
    ):
        assert stolen.refusal(method, where, token=token).status == 403
