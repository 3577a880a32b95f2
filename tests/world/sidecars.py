"""Ten sidecars as their projects publish them: requests and limits unaltered, each with its version and source.

`beside` puts one into a pod, beside an app with whole CPUs. Used by tests on the stand-in kernel, and by the lab.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Amounts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One shape.

    Attributes:
        name: of the shape.
        source: whose template says it: repository, file, commit (the first ten digits) and what version that is.
        container: the container's name.
        requests, limits: as published; empty where nothing is said.
        native: it is an init container with restartPolicy Always.
        init: name -> (requests, limits) of the init containers that come with it.
    """

    name: str
    source: str
    container: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    native: bool = False
    init: Mapping[str, tuple[Amounts, Amounts]] = field(default_factory=dict)


_ISTIO = (
    "istio/istio manifests/charts/istio-control/istio-discovery/values.yaml 007204dbcb (global.proxy.resources; the "
    "injection template gives istio-init the same)"
)
_PROXY = {"cpu": "100m", "memory": "128Mi"}, {"cpu": "2000m", "memory": "1024Mi"}
_VAULT = {"cpu": "250m", "memory": "64Mi"}, {"cpu": "500m", "memory": "128Mi"}
_LINKERD = {"cpu": "100m", "memory": "20Mi"}

SIDECARS = (
    Sidecar("istio", _ISTIO, "istio-proxy", *_PROXY, init={"istio-init": _PROXY}),
    Sidecar("istio-native", _ISTIO, "istio-proxy", *_PROXY, native=True, init={"istio-init": _PROXY}),
    Sidecar(
        "linkerd",
        "linkerd/linkerd2 charts/linkerd-control-plane/values.yaml 01d1e4646c (proxy.resources is empty; proxyInit)",
        "linkerd-proxy", init={"linkerd-init": (_LINKERD, _LINKERD)},
    ),
    Sidecar(
        "dapr", "dapr/dapr charts/dapr/charts/dapr_sidecar_injector/values.yaml 0051630144 (sets none)", "daprd",
    ),
    Sidecar(
        "vault", "hashicorp/vault-k8s agent-inject/agent/container_sidecar.go 01fd1ba724 (DefaultResource constants)",
        "vault-agent", *_VAULT, init={"vault-agent-init": _VAULT},
    ),
    Sidecar(
        "datadog", "DataDog/integrations-core eks_fargate/README.md 000b075958, Agent 7.17 and later",
        "datadog-agent", {"cpu": "200m", "memory": "256Mi"}, {"cpu": "200m", "memory": "256Mi"},
    ),
    Sidecar("fluent-bit", "fluent/helm-charts charts/fluent-bit/values.yaml 011820b96f (sets none)", "fluent-bit"),
    Sidecar(
        "cloud-sql-proxy",
        "GoogleCloudPlatform/cloud-sql-proxy examples/k8s-sidecar/proxy_with_workload_identity.yaml 07ebdaaeeb",
        "cloud-sql-proxy", {"cpu": "1", "memory": "2Gi"},
    ),
    Sidecar(
        "envoy",
        "aws/aws-app-mesh-controller-for-k8s config/helm/appmesh-controller/values.yaml 00e55e6aa4, 1.13.1",
        "envoy", {"cpu": "10m", "memory": "32Mi"},
    ),
    Sidecar(
        "otel", "open-telemetry/opentelemetry-operator tests/e2e-native-sidecar/00-install.yaml 947188582f",
        "otc-container", {"cpu": "5m", "memory": "64Mi"}, {"cpu": "500m", "memory": "128Mi"}, native=True,
    ),
)  # fmt: skip
KUBELET_PINS = frozenset({"datadog"})
"""Those beside which the kubelet pins the app, too: all that they ask for is fixed, so the pod is Guaranteed."""


def beside(shape: Sidecar, *, cpus: str = "8", memory: str = "64Mi") -> dict[str, list[dict[str, Any]]]:
    """`initContainers` and `containers` of a pod with an app of whole CPUs and this sidecar."""
    mine = _container(shape.container, shape.requests, shape.limits)
    app = _container("app", {}, {"cpu": cpus, "memory": memory})
    inits = [_container(name, *both) for name, both in shape.init.items()]
    if shape.native:
        return {"initContainers": [*inits, {**mine, "restartPolicy": "Always"}], "containers": [app]}
    return {"initContainers": inits, "containers": [app, mine]}


def _container(name: str, requests: Amounts, limits: Amounts) -> dict[str, Any]:
    resources = {key: dict(found) for key, found in (("requests", requests), ("limits", limits)) if found}
    return {"name": name, "image": "example.com/x", **({"resources": resources} if resources else {})}
