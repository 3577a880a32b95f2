"""Objects that the tests of this folder create."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def node(name: str, **labels: str) -> Object:
    """A node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def namespace(name: str, **annotations: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}


def account(name: str, space: str = "default") -> Object:
    """A service account."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": space}}


def pod(
    name: str, on: str, *, space: str = "default", cpu: str = "1", memory: str = "64Mi", **spec: object
) -> Object:
    """A Guaranteed pod bound to a node."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space},
        "spec": {
            "nodeName": on, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": resources}], **spec,
        },
    }  # fmt: skip


SCHEDULED = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
"""What the scheduler's binding writes into a pod's status, as a patch: these pods come with their node."""


def cluster_role(name: str, *rules: Object) -> Object:
    """A role of the whole cluster."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": list(rules),
    }  # fmt: skip


def bind(role: str, name: str, space: str = "default") -> Object:
    """Give a role to a service account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space}],
    }  # fmt: skip


def rule(groups: str, resources: str, *verbs: str) -> Object:
    """One rule of a role."""
    return {"apiGroups": [groups], "resources": [resources], "verbs": list(verbs)}
