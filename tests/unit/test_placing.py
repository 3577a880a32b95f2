"""Which nodes a specification lets a pod go to: selectors, affinity and tolerations as kube-scheduler reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import BadPodError
from agent.forecast.placing import facts_of, placing_of
from agent.forecast.workload_kinds import workload_from
from agent.model.fields import Field
from tests.examples import examples

LABELS = {"zone": "a", "cores": "64", "gpu": ""}


def node(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A Node object."""
    return {"metadata": {"name": "n1", "labels": LABELS}, "spec": spec}


def barred(spec: dict[str, Any], **of_the_node: Any) -> str:  # noqa: ANN401 - JSON
    """Why a pod of this spec may not go to the node."""
    return placing_of(Field(spec)).barred(facts_of(Field(node(**of_the_node))))


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """Required node affinity."""
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": rule}}


def line(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(*names: str) -> dict[str, Any]:
    """A term for nodes by name, as the DaemonSet controller writes them."""
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"nodeSelector": {"zone": "a", "gpu": ""}}, ""),
        ({"nodeSelector": {"zone": "b"}}, "nodeSelector"),
        ({"nodeSelector": {"none": ""}}, "nodeSelector"),
        (required(line("zone", "In", "b", "a")), ""),
        (required(line("zone", "In", "b")), "node affinity"),
        (required(line("zone", "In", "b"), line("gpu", "Exists")), ""),
        (required({**line("zone", "In", "a"), **named("n2")}), "node affinity"),
        (required(named("n1")), ""),
        (required(), "node affinity"),
        (required({}), "node affinity"),
        (required(line("zone", "NotIn", "a")), "node affinity"),
        (required(line("none", "NotIn", "a")), ""),
        (required(line("none", "DoesNotExist")), ""),
        (required(line("gpu", "DoesNotExist")), "node affinity"),
        (required(line("cores", "Gt", "63")), ""),
        (required(line("cores", "Gt", "64")), "node affinity"),
        (required(line("cores", "Lt", "65")), ""),
        (required(line("zone", "Lt", "65")), "node affinity"),
    ],
)
def test_selectors_and_affinity(spec: dict[str, Any], why: str) -> None:
    """Labels must be equal, terms are alternatives, all of a term must hold, and an empty term never does."""
    assert barred(spec) == why


DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "why"),
    [
        ([], "taint dedicated"),
        ([{"operator": "Exists"}], ""),
        ([{"key": "dedicated", "operator": "Exists"}], ""),
        ([{"key": "dedicated", "value": "ml"}], ""),
        ([{"key": "dedicated", "value": "web"}], "taint dedicated"),
        ([{"key": "dedicated", "value": "ml", "effect": "NoExecute"}], "taint dedicated"),
        ([{"key": "dedicated", "operator": "Gt", "value": "1"}], "taint dedicated"),
        ([{"key": "", "value": "ml"}], "taint dedicated"),
    ],
)
def test_taints_keep_away_who_does_not_tolerate_them(tolerations: list[dict[str, str]], why: str) -> None:
    """By key, value and effect; a taint that only prefers keeps nobody away."""
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    assert barred({"tolerations": tolerations}, taints=[DEDICATED, soft]) == why


@pytest.mark.parametrize(
    ("operator", "value", "why"),
    [
        ("Gt", "949", ""), ("Gt", "950", "taint risk"), ("Lt", "951", ""), ("Lt", "950", "taint risk"),
        ("Lt", "much", "taint risk"), ("Lt", "", "taint risk"), ("Near", "950", "taint risk"),
    ],
)  # fmt: skip
def test_a_taint_is_compared_by_number(operator: str, value: str, why: str) -> None:
    """Kubernetes 1.35 and newer: the taint's value is above or below that of the toleration."""
    found = barred(
        {"tolerations": [{"key": "risk", "operator": operator, "value": value}]},
        taints=[{"key": "risk", "value": "950", "effect": "NoSchedule"}],
    )
    assert found == why


def test_a_cordoned_node_takes_daemons_only() -> None:
    """spec.unschedulable counts as its taint; a DaemonSet's pods tolerate it, another workload's do not."""
    template = {"spec": {"containers": [{"name": "c"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"template": template}}
    facts = facts_of(Field(node(unschedulable=True)))
    for kind, why in (("Deployment", "cordoned"), ("DaemonSet", "")):
        (item,) = workload_from({**body, "kind": kind}).items
        assert item.placing.barred(facts) == why


def test_what_is_not_looked_at_is_named() -> None:
    """Everything else of a specification that decides where a pod goes, in words."""
    spec = {
        "affinity": {
            "podAntiAffinity": {},
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
        },
        "topologySpreadConstraints": [{}], "volumes": [{"emptyDir": {}}, {"persistentVolumeClaim": {}}],
        "resourceClaims": [{}], "schedulingGates": [{}], "schedulerName": "volcano",
        "containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}],
    }  # fmt: skip
    assert placing_of(Field(spec)).unseen == (
        "affinity to pods", "preferred nodes", "topology spreading", "where volumes are", "resource claims",
        "scheduling gates", "host ports", "scheduler volcano",
    )  # fmt: skip
    assert not placing_of(Field({"schedulerName": "default-scheduler", "volumes": [{"configMap": {}}]})).unseen


odd: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, "In", "x", "Exists", "NoSchedule", True, -(2**70), "9" * 99]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions",
            "matchFields", "key", "operator", "values", "value", "effect", "ports", "hostPort",
        ]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.sampled_from(
    ["affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "volumes", "containers", "schedulerName"]
), odd, max_size=4))  # fmt: skip
def test_any_specification_is_read_or_refused(spec: dict[str, Any]) -> None:
    """Whatever an object holds there, it is read, or refused with its path; no other fault comes of it."""
    try:
        told = placing_of(Field(spec, "spec", BadPodError)).barred(facts_of(Field(node(taints=[DEDICATED]))))
    except BadPodError as error:
        told = error.field
    assert told in {"", "taint dedicated", "nodeSelector", "node affinity"} or told.startswith("spec")
