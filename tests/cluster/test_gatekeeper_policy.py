"""What the gatekeeper's token can do to a pod, and which pods are gated: a real API server, with the chart's rights.

Rule S23: its policies, field by field.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import yaml

from agent.forecast.gate.values import GATE, HOSTNAME, FitCondition
from agent.kube.gate.patches import release_patch, status_patch
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import DEPLOY, STRATEGIC, SYSTEM
from tests.cluster.objects import Object, namespace, pod
from tests.patience import until

pytestmark = pytest.mark.cluster
SPACE, SWITCH = "gated", "numalign-gate"
POLICY = "ValidatingAdmissionPolicy 'numalign-gatekeeper'"
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for each in ("not-ready", "unreachable")
]
"""Those that the API server gives every pod, and that stay."""
NOTES = {"numalign.io/gate": "true", "numalign.io/policy": "single-numa-node"}


class Gates:
    """The policies in force, and the gatekeeper's token."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        cluster.ensure(namespace(SYSTEM), namespace(SPACE))
        cluster.ensure(*yaml.safe_load_all((DEPLOY / "access/gatekeeper.yaml").read_text()))
        self.token = cluster.token(SYSTEM, "numalign-gatekeeper")
        cluster.wait_allowed(self.token, "patch", "pods", subresource="status")
        body = self.create("in-force")
        labels = ({"metadata": {"labels": {"number": f"{each}"}}} for each in count())
        until(lambda: POLICY in self.refusal(body, next(labels)), "the policy")

    def create(self, name: str, *, gates: tuple[str, ...] = (GATE,), **spec: Any) -> Object:  # noqa: ANN401 - JSON
        """A pod without a node."""
        body = pod(name, "", space=SPACE, schedulingGates=[{"name": each} for each in gates], **spec)
        del body["spec"]["nodeName"]
        (stored,) = self.cluster.create(body)
        found: Object = stored
        return found

    def patch(self, body: Object, patch: Object, part: str = "") -> Object:
        """A patch with the token; raises ApiError."""
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/pods/{body['metadata']['name']}{part}"
        found: Object = self.cluster.call("PATCH", path, patch, kind=STRATEGIC, token=self.token)
        return found

    def refusal(self, body: Object, patch: Object, part: str = "") -> str:
        """What a patch is told; "" where it is carried out."""
        try:
            self.patch(body, patch, part)
        except ApiError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def gates(cluster: ControlPlane) -> Gates:
    """The policies."""
    return Gates(cluster)


def names(body: Object) -> tuple[str, str]:
    """Uid and version."""
    return body["metadata"]["uid"], body["metadata"]["resourceVersion"]


def test_a_gated_pod_is_nominated_and_released_with_nodes_to_avoid(gates: Gates) -> None:
    """Both patches of a release pass, with the versions that they name; a stale one is a conflict."""
    zone = {"key": "zone", "operator": "DoesNotExist"}
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": fields}]}
    for number, affinity in enumerate(({}, {"requiredDuringSchedulingIgnoredDuringExecution": required})):
        more: Object = {"affinity": {"nodeAffinity": affinity}} if affinity else {}
        body = gates.create(f"released-{number}", **more)
        told = FitCondition(fits=True, reason="Chosen", message="a: its decision takes the pod")
        first = status_patch(*names(body), nominated="a", condition=told, since=1.8e9)
        stored = gates.patch(body, first, "/status")
        assert stored["status"]["nominatedNodeName"] == "a"
        assert "409" in gates.refusal(body, first, "/status")
        stored = gates.patch(body, release_patch(*names(stored), affinity, not_in=["b", "c"], prefer="a"))
        assert "schedulingGates" not in stored["spec"]
        terms = stored["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        avoid = {"key": HOSTNAME, "operator": "NotIn", "values": ["b", "c"]}
        assert all(avoid in each["matchExpressions"] for each in terms["nodeSelectorTerms"])
        stored = gates.patch(body, status_patch(*names(stored), nominated=""), "/status")
        assert "nominatedNodeName" not in stored["status"]


def test_a_pod_without_the_gate_is_not_nominated_and_foreign_gates_stay(gates: Gates) -> None:
    """Nor is any other field of it changed."""
    plain, both = gates.create("plain", gates=()), gates.create("both", gates=("other.io/gate", GATE))
    assert POLICY in gates.refusal(plain, {"status": {"nominatedNodeName": "a"}}, "/status")
    assert POLICY in gates.refusal(
        both, {"spec": {"schedulingGates": [{"name": "other.io/gate", "$patch": "delete"}]}}
    )
    stored = gates.patch(both, release_patch(both["metadata"]["uid"], "", {}))
    assert stored["spec"]["schedulingGates"] == [{"name": "other.io/gate"}]


@pytest.mark.parametrize(
    ("part", "patch"),
    [
        ("", {"metadata": {"labels": {"a": "b"}}}),
        ("", {"metadata": {"annotations": {"a": "b"}}}),
        ("", {"spec": {"nodeSelector": {"a": "b"}}}),
        ("", {"spec": {"containers": [{"name": "c", "image": "other"}]}}),
        ("", {"spec": {"activeDeadlineSeconds": 1}}),
        ("", {"spec": {"tolerations": [*TOLERATIONS, {"operator": "Exists"}]}}),
        ("", release_patch("", "", {}, not_in=[f"n{each}" for each in range(33)])),
        ("", {"spec": {"affinity": release_patch("", "", {}, not_in=["a"])["spec"]["affinity"]}}),
        ("/status", {"status": {"phase": "Failed"}}),
        ("/status", {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}),
    ],
)  # fmt: skip
def test_nothing_else_of_a_gated_pod_is_changed(gates: Gates, part: str, patch: Object) -> None:
    """Also not more names than the setting allows, and no affinity while the gate stays."""
    patch = {**patch, "metadata": {key: each for key, each in patch.get("metadata", {}).items() if each}}
    body = gates.create(f"other-{abs(hash(str(patch)))}")
    assert POLICY in gates.refusal(body, patch, part)


def test_the_token_binds_no_pod_and_deletes_none(gates: Gates) -> None:
    """RBAC says no."""
    body = gates.create("bound", gates=())
    path = f"/api/v1/namespaces/{SPACE}/pods/bound"
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
               "target": {"apiVersion": "v1", "kind": "Node", "name": "a"}}  # fmt: skip
    for method, target, sent in (("POST", f"{path}/binding", binding), ("DELETE", path, None)):
        with pytest.raises(ApiError, match="403"):
            gates.cluster.call(method, target, sent, token=gates.token)
    assert body


def test_pods_that_ask_are_gated_while_the_switch_is_there(gates: Gates) -> None:
    """By annotation or label of the namespace, if they are strict; never pods that must not wait."""
    numbers = iter(range(10_000))

    def gated(space: str = SPACE, **more: Any) -> list[str]:  # noqa: ANN401 - JSON
        body = pod(f"asks-{next(numbers)}", more.pop("on", ""), space=space)
        if not body["spec"]["nodeName"]:
            del body["spec"]["nodeName"]
        body["metadata"].update(more.pop("metadata", {}))
        body["spec"].update(more)
        (stored,) = gates.cluster.create(body)
        return [each["name"] for each in stored["spec"].get("schedulingGates", ())]

    asks = {"annotations": NOTES}
    assert gated(metadata=asks) == []
    switch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SWITCH, "namespace": SYSTEM}}
    gates.cluster.ensure(switch)
    until(lambda: gated(metadata=asks) == [GATE], "the switch")
    assert gated(metadata=asks, schedulingGates=[{"name": "other.io/gate"}]) == ["other.io/gate", GATE]
    assert gated() == []
    assert gated(metadata={"annotations": {"numalign.io/gate": "true"}}) == []
    assert gated(metadata=asks, on="a") == []
    assert gated(metadata=asks, schedulerName="other") == []
    daemon = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
    assert gated(metadata={**asks, "ownerReferences": daemon}) == []
    assert gated("kube-system", metadata=asks) == []
    assert gated(SYSTEM, metadata=asks) == []
    space = namespace("all-gated", **{"numalign.io/on-misalignment": "wait"})
    space["metadata"]["labels"] = {"numalign.io/gate": "true"}
    gates.cluster.ensure(space)
    until(lambda: gated("all-gated") == [GATE], "the namespace")
    assert gated("all-gated", metadata={"annotations": {"numalign.io/gate": "false"}}) == []
    gates.cluster.call("DELETE", f"/api/v1/namespaces/{SYSTEM}/configmaps/{SWITCH}")
    until(lambda: gated(metadata=asks) == [], "the switch to go")
