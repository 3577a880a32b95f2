"""Claims of DRA on a real API server: followed by a real agent with the rights of `deploy/access`, and no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count

import pytest
import yaml

from agent.kube.resource_slices import PATH
from agent.model.idset import CpuSet
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import DEPLOY, MERGE, Agent, Make, Place
from tests.cluster.objects import Object
from tests.cluster.stolen import Stolen
from tests.patience import until

pytestmark = pytest.mark.cluster
DRIVER = "gpu.example.com"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/numalign-claims"
FOLLOWING = {"dra": {"enabled": True}}
LISTED = 'numalign_api_requests_total{code="200",verb="LIST resourceslices"}'
UNANSWERED = 'numalign_api_requests_total{code="0",verb="LIST resourceslices"}'
READ = 'numalign_api_requests_total{code="200",verb="GET resourceclaims"}'


@pytest.fixture
def role(cluster: ControlPlane) -> Iterator[None]:
    """The role for claims, for the time of a test."""
    cluster.ensure(*yaml.safe_load_all((DEPLOY / "access/rbac-claims.yaml").read_text()))
    yield
    cluster.call("DELETE", BINDING)


def allocate(node: Place, claim: str, device: str) -> None:
    """A claim, as the scheduler leaves it, for a device of this node on NUMA node 1; the slice is there already."""
    claims = f"/apis/resource.k8s.io/v1/namespaces/{node.name}/resourceclaims"
    requests = [{"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}]
    node.cluster.call("POST", claims, {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": claim},
        "spec": {"devices": {"requests": requests}},
    })  # fmt: skip
    results = [{"request": "r", "driver": DRIVER, "pool": node.name, "device": device}]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    node.cluster.call("PATCH", f"{claims}/{claim}/status", status, kind=MERGE)


def publish(node: Place) -> None:
    """The driver's slice of this node."""
    node.cluster.call("POST", PATH, {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node.name}-gpu"},
        "spec": {
            "driver": DRIVER, "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu{at}", "attributes": {"resource.kubernetes.io/numaNode": {"int": at}}} for at in (0, 1)
            ],
        },
    })  # fmt: skip


def using(node: Place, name: str, claim: str) -> Object:
    """A pod whose container c uses a claim."""
    amounts = {"cpu": "2", "memory": "64Mi"}
    resources = {"requests": amounts, "limits": amounts, "claims": [{"name": "gpu"}]}
    containers = [{"name": "c", "image": "none", "resources": resources}]
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return node.create(name, containers=containers, resourceClaims=claims, annotations={"policy": "single-numa-node"})


@pytest.mark.usefixtures("role")
def test_s22_cpus_lie_beside_the_claims_device(place: Make) -> None:
    """A pod with a claim gets CPUs of the device's node; its annotation says why; one without costs nothing."""
    node = place(settings=FOLLOWING)
    publish(node)
    allocate(node, "mine", "gpu1")
    with Agent(node) as agent:
        node.create("plain")
        until(lambda: node.assignment("plain"), what="the pod without a claim")
        idle, unanswered = agent.metric(LISTED), agent.metric(UNANSWERED)
        assert agent.metric(READ) == 0
        numbers, tried = count(), [""]

        def followed() -> bool:
            """The agent asks as long as a starting pod can wait: where all answers were late, another pod is next."""
            if not tried[-1] or f"the claims of pod {node.name}/{tried[-1]} are not followed" in agent.words():
                if tried[-1]:
                    node.delete(tried[-1])
                tried.append(f"job-{next(numbers)}")
                using(node, tried[-1], "mine")
            return "claims" in node.assignment(tried[-1]).get("containers", {}).get("c", {})

        until(followed, what="the claim's word")
        job = tried[-1]
        mine = node.assignment(job)["containers"]["c"]
        assert mine["claims"] == {"mine": {f"{DRIVER}/{node.name}/gpu1": "1"}}
        assert str(node.machine.nodes_of(CpuSet.parse(mine["cpus"]))) == "1"
        assert (mine["aligned"], node.condition(job)["status"]) == (True, "True")
        again = agent.metric(UNANSWERED) - unanswered  # the claim is read once more where its slices were not
        assert (agent.metric(READ), agent.metric(LISTED) - idle) == (1 + again, 1)


def test_s19_without_the_role_a_claim_stays_unknown(place: Make, cluster: ControlPlane) -> None:
    """The server refuses: the pod is placed as without a claim, and the log says why after the last try."""
    with contextlib.suppress(ApiError):  # no test before made it
        cluster.call("DELETE", BINDING)
    node = place(settings=FOLLOWING)
    publish(node)
    allocate(node, "mine", "gpu1")
    with Agent(node) as agent:
        using(node, "job", "mine")
        until(lambda: node.assignment("job"), what="the decision")
        until(
            lambda: f"the claims of pod {node.name}/job are not followed" in agent.words(),
            what="the word",
        )
        assert "claims" not in node.assignment("job")["containers"]["c"]


@pytest.mark.usefixtures("role")
def test_s19_a_stolen_token_reads_one_claim_and_writes_none(cluster: ControlPlane) -> None:
    """By name, in any namespace, as the documentation says; it neither lists, watches nor changes claims."""
    stolen = Stolen(cluster, "claims")
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    until(lambda: stolen.refusal("GET", f"{claims}/none").status == 404, what="the rights")
    tries = (("GET", claims), ("GET", f"{claims}?watch=true"), ("POST", claims), ("DELETE", f"{claims}/none"),
             ("PATCH", f"{claims}/none"), ("PATCH", f"{claims}/none/status"))  # fmt: skip
    assert [stolen.refusal(method, path, {}).status for method, path in tries] == [403] * len(tries)
