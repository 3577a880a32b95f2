"""Which pods are left alone (safety.md S2)."""

from __future__ import annotations

import pytest

from agent.core.request.exempt import CRITICAL, Exemptions
from agent.model.pod import Pod, Qos


def pod(
    namespace: str = "default", name: str = "web", priority: int = 0, uid: str = "u", *, static: bool = False
) -> Pod:
    """A pod of which only its identity counts."""
    return Pod(uid, name, namespace, (), Qos.BEST_EFFORT, priority=priority, static=static)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod(), ""),
        (pod("kube-system", "proxy"), "namespace kube-system is left alone"),
        (pod("kube-system", "tuned"), ""),
        (pod(priority=CRITICAL - 1), ""),
        (pod(priority=CRITICAL), "is critical to the system"),
        (pod(static=True), "it is a static pod"),
        (pod(name="tuned-static", static=True), ""),
        (pod("kube-system", "tuned", uid="me"), "it is numalign itself"),
    ],
)
def test_s2_who_is_left_alone(found: Pod, why: str) -> None:
    """Excluded namespaces, critical priorities, static pods, unless named; our own pod in any case."""
    rule = Exemptions(("kube-system",), ("*/tuned*",), "me")
    assert (why in rule.why(found)) if why else rule.why(found) == ""


def test_s2_where_static_pods_are_what_is_served_they_are_not_left_alone() -> None:
    """The folder names them explicitly; kube-system and critical ones still are."""
    rule = Exemptions(static=False)
    assert rule.why(pod(static=True)) == ""
    assert rule.why(pod("kube-system", static=True)) != ""
