"""Annotations in the wrong place, misspelt or too late: each is told where people look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import group
from agent.kube.nodes import node_facts, unknown_sentence
from agent.model.notes import MOST_TO_TOUCH, OURS
from agent.node.explaining import explained
from tests.flow.told import Told, telling
from tests.flow.world import World, container, manifest

SWITCH = "numalign.io/observe-only"


def told_of(told: Told, name: str) -> list[str]:
    """The messages of a pod's Events about annotations."""
    return [each["message"] for each in told.api.events(name) if each["reason"] == "BadAnnotation"]


def noted(notes: Mapping[str, str], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A pod with annotations of these full names."""
    body = manifest("p", **more)
    return {**body, "metadata": {**body["metadata"], "annotations": dict(notes)}}


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"numalgin.io/policy": "restricted"}, "numalgin.io/policy: is no annotation of numalign"),
        ({"numalgin.io/policy": "restricted"}, "(did you mean numalign.io/policy?)"),
        ({"numaling.io/scope": "pod"}, "(did you mean numalign.io/scope?)"),
        ({"numalign.com/exclusive": "auto"}, "(did you mean numalign.io/exclusive?)"),
        ({"nummalign.io/policy": "none"}, "(did you mean numalign.io/policy?)"),
        ({"numalign.io/polcy": "none"}, "(did you mean numalign.io/policy?)"),
        ({"numalign.io/on_misalignment": "wait"}, "(did you mean numalign.io/on-misalignment?)"),
        ({"numalign.io/policy": "Single-NUMA-Node"}, "(did you mean single-numa-node?)"),
        ({"numalign.io/scope": "Pod"}, "(did you mean pod?)"),
        ({"numalign.io/align": "memory"}, "(did you mean numa,memory?)"),
        ({"numalign.io/cpu-options": "full-pcpus-only"}, "(did you mean full-pcpus-only=true?)"),
        ({"numalign.io/cpu-options": "full-pcpu-only=true"}, "(did you mean full-pcpus-only?)"),
        ({"numalign.io/pin": "off"}, "(did you mean false?)"),
        ({"numalign.io/exclusive": "true"}, "(did you mean auto, or the container's name?)"),
        ({"numalign.io/exclusive": "Auto"}, "(did you mean auto?)"),
        ({"numalign.io/exclusive": "no"}, "(did you mean none?)"),
        ({"numalign.io/mixed": "true"}, "(did you mean the container's name?)"),
    ],
)  # fmt: skip
def test_a_slip_of_the_pen_is_told_with_what_was_meant(tmp_path: Path, notes: dict[str, str], words: str) -> None:
    """An Event on the pod, which runs; one whose list names no container of it shares CPUs."""
    with telling(tmp_path) as told:
        told.list(noted(notes))
        told.settled()
        assert words in " ".join(told_of(told, "p"))
        assert told.world.holds("p") or notes.keys() == {"numalign.io/exclusive"}


@pytest.mark.parametrize("name", ["example.io/policy", "align.io/policy", "numalign.example/policy", "policy", "a/b"])
def test_other_peoples_annotations_are_theirs(tmp_path: Path, name: str) -> None:
    """Nothing is said of a domain that is not almost ours."""
    with telling(tmp_path) as told:
        told.list(noted({name: "x"}))
        told.settled()
        assert told.api.events("p") == []


def test_very_many_annotations_cost_a_bounded_look(tmp_path: Path) -> None:
    """Of a tenant's thousands of domains of the right length only few are compared."""
    names = {f"numalign.{number:02x}/x": "y" for number in range(256)} | {f"{n:011}/x": "y" for n in range(3000)}
    with telling(tmp_path) as told:
        told.list(noted(names))
        told.settled()
        (message,) = told_of(told, "p")
        assert len(message) <= 1024


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"policy": "single-numa-node"},
         'numalign.io/policy: "single-numa-node" came after the pod was placed (with best-effort); delete the pod'),
        ({}, {"scope": "pod"}, 'numalign.io/scope: "pod" came after the pod was placed (with container)'),
        ({}, {"align": "numa"}, 'numalign.io/align: "numa" came after the pod was placed; delete the pod'),
        ({"policy": "restricted"}, {"policy": "none"}, "came after the pod was placed (with restricted)"),
        ({}, {"cpu_options": "full-pcpus-only=true"}, "came after the pod was placed; delete the pod"),
        ({"exclusive": "app"}, {"exclusive": "none"}, "came after the pod was placed (with app)"),
        ({}, {"policy": "best-effort"}, ""),
        ({"policy": "restricted"}, {}, ""),
        ({}, {"on_misalignment": "wait"}, ""),
    ],
)  # fmt: skip
def test_an_annotation_that_came_too_late_is_told(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    """The pod keeps what it has; an Event and the explanation say what to do. What changes nothing is not told."""
    with telling(tmp_path) as told:
        told.list(manifest("p", **before))
        told.settled()
        held = told.world.holds("p")
        told.see(manifest("p", **after))
        told.settled()
        found = " ".join(told_of(told, "p"))
        assert words in found if words else found == ""
        assert told.world.holds("p") == held
        told_by = explained(told.world.engine.snapshot, "p")
        assert told_by is not None
        if words and "exclusive" not in after:
            assert any("came after the pod was placed" in each for each in told_by.notes)


def test_the_defaults_of_a_namespace_are_for_new_pods(tmp_path: Path) -> None:
    """An admin who annotates a namespace gets no Warning on each pod that runs there."""
    defaults: dict[str, str] = {}
    with telling(tmp_path, defaults=defaults) as told:
        body = manifest("p")
        told.list(body)
        told.settled()
        defaults["numalign.io/policy"] = "restricted"
        told.see({**body, "metadata": {**body["metadata"], "labels": {"a": "b"}}})
        told.settled()
        assert told.api.events("p") == []


@pytest.mark.parametrize(
    ("notes", "names", "words"),
    [
        ({SWITCH: "true"}, (), ""),
        ({"example.io/observe_only": "true"}, (), ""),
        ({"numalign.io/observe_only": "true"}, ("numalign.io/observe_only",), f"did you mean {SWITCH}?"),
        ({"numalgin.io/observe-only": "true"}, ("numalgin.io/observe-only",), f"did you mean {SWITCH}?"),
        ({"numalign.io/observeOnly": "1", SWITCH: "true"}, ("numalign.io/observeOnly",), f"did you mean {SWITCH}?"),
        ({"numalign.io/policy": "none"}, ("numalign.io/policy",), f"{SWITCH} is the only one that it reads there"),
    ],
)
def test_a_misspelt_kill_switch_is_told(notes: dict[str, str], names: tuple[str, ...], words: str) -> None:
    """It is the emergency switch: what looks like it on the Node, and is none, is named with what was meant."""
    facts = node_facts({"metadata": {"annotations": notes}})
    assert facts.unknown == names
    assert bool(facts.observe_only) == (SWITCH in notes)
    if names:
        assert unknown_sentence(facts.unknown).endswith(words)


def test_the_nodes_annotations_are_bounded() -> None:
    """Annotations of a Node can hold any text: few names are shown, short and printable."""
    notes = {f"numalign.io/{letter * 200}\n": "x" for letter in "abcdefgh"}
    found = node_facts({"metadata": {"annotations": notes}}).unknown
    assert len(found) == 5
    assert all(len(each) <= 80 and each.isprintable() for each in found)


def test_a_wish_that_names_no_container_is_told_as_such(tmp_path: Path) -> None:
    """`true` names no container. The sentence begins with the annotation, as it is written."""
    world = World(tmp_path)
    world.see(manifest("p", container(), exclusive="true"))
    found = explained(world.engine.snapshot, "p")
    assert found is not None
    assert "numalign.io/exclusive names no container of the pod" in f"{found.summary} {found.reasons}"


@pytest.mark.parametrize(
    ("kind", "annotation", "code"),
    [
        ("Pod", "numalign.io/policy: restricted", 0),
        ("Pod", "numalign.io/policy: strict", 2),
        ("Pod", "numalgin.io/policy: none", 2),
        ("Deployment", "numalign.io/policy: none", 2),
    ],
    ids=["good", "value", "domain", "place"],
)
def test_a_pipeline_can_stop_at_an_annotation_that_does_nothing(
    tmp_path: Path, kind: str, annotation: str, code: int
) -> None:
    """`explain --strict` ends with 2; without it the answer's own exit code counts."""
    spec = "{containers: [{name: a}]}"
    spec = f"{{template: {{spec: {spec}}}}}" if kind == "Deployment" else spec
    metadata = f"{{name: p, annotations: {{{annotation}}}}}"
    (tmp_path / "a.yaml").write_text(f"kind: {kind}\nmetadata: {metadata}\nspec: {spec}\n")
    words = ["explain", "--manifest", str(tmp_path / "a.yaml"), "--root", "two-sockets"]
    assert CliRunner().invoke(group, [*words, "--strict"]).exit_code == code
    assert CliRunner().invoke(group, words).exit_code == 0


def full(name: str, number: int = 20_000, cpu: str = "2", created: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A pod that asks for CPUs, with so many annotations of no meaning to us."""
    body = manifest(name, container(cpu=cpu), created=created, namespace="tenant", **more)
    body["metadata"].setdefault("annotations", {}).update({f"{each:x}": "" for each in range(number)})
    return body


def writes(told: Told, name: str) -> list[Any]:
    """The patches of a pod, and of its status."""
    return [
        body for method, path, body in list(told.api.requests)
        if method == "PATCH" and f"/pods/{name}" in path
    ]  # fmt: skip


def test_a_full_pod_is_pinned_and_told_by_one_event(tmp_path: Path) -> None:
    """Its CPUs are its own, nothing is written to it, one Event says why; the next pod carries its words.

    Finding 19.
    """
    with telling(tmp_path) as told:
        told.list(full("evil"), manifest("ok", container(cpu="1"), created=2))
        told.settled()
        told.see(full("evil", 30_000))
        told.settled()
        assert told.world.holds("evil") == "1-2"
        assert writes(told, "evil") == []
        (event,) = told.api.events("evil")
        assert event["reason"] == "NotTold"
        assert f"more than {MOST_TO_TOUCH} annotations" in event["message"]
        assert told.api.condition("ok")["status"] == "True"


def test_a_full_pod_that_is_refused_is_ended_by_its_deadline_alone(tmp_path: Path) -> None:
    """`fail` reaches it: one patch without an annotation (finding 19)."""
    with telling(tmp_path) as told:
        told.list(full("evil", cpu="64", policy="single-numa-node", on_misalignment="fail"))
        told.settled()
        (patch,) = writes(told, "evil")
        assert patch["spec"] == {"activeDeadlineSeconds": 1}
        assert "annotations" not in patch["metadata"]


def test_a_pod_that_is_full_no_more_is_told(tmp_path: Path) -> None:
    """Its owner took the annotations away: it carries what it was not told before (finding 19)."""
    with telling(tmp_path) as told:
        told.list(full("evil"))
        told.settled()
        told.see(full("evil", MOST_TO_TOUCH - len(OURS)))
        told.settled()
        assert told.api.condition("evil")["status"] == "True"
        told.see(full("evil", MOST_TO_TOUCH - len(OURS) + 1))
        told.settled()
        assert len(writes(told, "evil")) == 1
