"""The switch of the gate: the ConfigMap that the admission policy's binding refers to (paramRef).

Without the ConfigMap the API server puts the gate on no pod (parameterNotFoundAction: Allow). The leader makes it
when it serves, and deletes it when it stops or cannot decide. Its owner is the gatekeeper's Deployment, so that
Kubernetes removes it with that.
"""

from __future__ import annotations

from typing import Any

from agent.errors import KubeError
from agent.kube.client import KubeClient, unread
from agent.model.fields import mapping_of

LABEL, PART = "app.kubernetes.io/component", "gatekeeper"
SWITCH = "numalign.io/gate-switch"
"""The label of the ConfigMap: `numalign ungate` finds it by that."""
NOT_FOUND, EXISTS = 404, 409


class GateSwitch:
    """The ConfigMap.

    Args:
        client: of the API.
        namespace, name: of the ConfigMap.
        deployment: its owner.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str, deployment: str) -> None:
        self._client, self._namespace, self._name, self._deployment = client, namespace, name, deployment
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.on: bool | None = None
        """Whether it is there; None while that is unknown."""

    def turn(self, *, on: bool) -> None:
        """Make or delete the ConfigMap.

        Raises:
            KubeError: that was refused, or got no answer; what is there is unknown then.
        """
        self.on = None
        try:
            if on:
                self._client.call("POST", self._path, self._body(), verb="POST configmaps", reader=unread)
            else:
                self._client.call("DELETE", f"{self._path}/{self._name}", verb="DELETE configmaps", reader=unread)
        except KubeError as error:
            if error.status != (EXISTS if on else NOT_FOUND):
                raise
        self.on = on

    def _body(self) -> dict[str, Any]:
        labels = {LABEL: PART, SWITCH: "on"}
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "labels": labels}
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{self._deployment}"
        try:
            found = mapping_of(self._client.call("GET", path, verb="GET deployments").get("metadata"))
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": self._deployment, "uid": found["uid"]}
            ]
        except (KubeError, KeyError):
            pass  # a gatekeeper without a Deployment has a switch without an owner
        about = "While this is here, pods that ask for it are created with the gate numalign.io/fit."
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"about": about}}
