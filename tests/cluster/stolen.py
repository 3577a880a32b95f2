"""An agent's token in the wrong hands: bound to the agent's pod on one node, with the rights that the chart gives it.

`Stolen` makes the node, another node, a pod on each, and the token, on a control plane that others share.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.nodes import MERGE, SYSTEM, install, wait_policy
from tests.cluster.objects import Object, namespace, node, pod

POLICY = "ValidatingAdmissionPolicy 'numalign'"
"""In the text of every refusal that is the policy's."""
SWITCHES = "eviction", "cleanup"


class Stolen:
    """One agent's token.

    Args:
        cluster: the control plane.
        name: of the node; the other one and the pods' namespace are named after it.
        switches: rights that the chart gives on request only.

    Attributes:
        bound: the token that the agent's pod has; loose: one of the same account that is bound to nothing.
    """

    def __init__(self, cluster: ControlPlane, name: str, *switches: str) -> None:
        self.cluster, self.name, self.other, self.space = cluster, name, f"{name}-other", name
        install(cluster, "access/rbac", "access/admission-policy")
        self.switch(*switches)
        cluster.create(namespace(self.space), node(self.name), node(self.other))
        (self.agent,) = cluster.create(pod(f"agent-{name}", name, space=SYSTEM, serviceAccountName="numalign"))
        (beside,) = cluster.create(pod(f"beside-{name}", name, space=self.space))
        self.bound, self.loose = cluster.token(SYSTEM, "numalign", self.agent), cluster.token(SYSTEM, "numalign")
        path = self.path(beside["metadata"]["name"])
        wait_policy(lambda labels: self.refusal("PATCH", path, labels).policy)

    def switch(self, *switches: str) -> None:
        """Give these rights, and no other that is a switch of the chart: other tests share the account."""
        for each in SWITCHES:
            if each in switches:
                install(self.cluster, f"access/rbac-{each}")
            else:
                with contextlib.suppress(ApiError):  # nobody has bound it
                    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/numalign-{each}"
                    self.cluster.call("DELETE", path)

    def path(self, name: str = "", space: str = "") -> str:
        return f"/api/v1/namespaces/{space or self.space}/pods/{name}".rstrip("/")

    def create(self, name: str, on: str = "", **more: Any) -> Object:  # noqa: ANN401 - a specification's fields
        """A pod, on the token's node where no other is named."""
        (stored,) = self.cluster.create(pod(name, on or self.name, space=self.space, **more))
        return stored

    def call(self, method: str, path: str, body: object = None, kind: str = MERGE, token: str = "") -> Any:  # noqa: ANN401 - JSON
        """One request with the token; raises ApiError."""
        return self.cluster.call(method, path, body, kind=kind if method == "PATCH" else "application/json",
                                 token=token or self.bound)  # fmt: skip

    def refusal(self, method: str, path: str, body: object = None, kind: str = MERGE, token: str = "") -> Refused:
        try:
            self.call(method, path, body, kind, token)
        except ApiError as error:
            return Refused(error.status, str(error))
        return Refused(0, "")


class Refused:
    """An answer: `status` 0 is none, the request was carried out; `policy`: the admission policy said no."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text, self.policy = status, text, POLICY in text

    def __repr__(self) -> str:
        return f"{self.status} {self.text}"


def changed(body: Object, path: str, sample: object) -> Object:
    """A merge patch that changes one field of an object: `spec.tolerations[].key` is that of the first toleration.

    Where there is no such item, one is added that has this field alone.
    """
    part, _, rest = path.partition(".")
    top, _, inner = rest.partition(".")
    many, key = top.endswith("[]"), top.removesuffix("[]")
    if not inner:
        return {part: {key: _other(body.get(part, {}).get(key), sample)}}
    held = copy.deepcopy(body.get(part, {}).get(key, [] if many else {}))
    if not many:
        return {part: {key: {inner: _other(held.get(inner), sample)}}}
    held = held or [{}]
    held[0][inner] = _other(held[0].get(inner), sample)
    return {part: {key: held}}


def _other(now: object, sample: object) -> object:
    """A value of a field's type that differs from what it has."""
    if now == sample:
        return {True: False, 7: 8}.get(now, f"{now}x") if isinstance(now, bool | int) else f"{now}x"
    return not now if isinstance(now, bool) else sample
