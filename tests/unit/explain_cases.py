"""Cases of explanations in files (tests/unit/explain/*.yaml): a machine, settings, pods that came before, and a pod.

machine    as after --root synthetic:
settings   the configuration file
devices    of the kubelet's plugins: resource -> {id: NUMA node}
before     pods that came before, in order; `ended`: names of those that have ended by now, `after`: that came later
given      devices that the kubelet gave the pod: resource -> ids
pod        the pod: name, annotations, and limits (and requests) of its only container, or containers in full
line       who waits already
ran        the pod ran before the agent
seen       the engine decides on the pod; without it nobody has seen it yet
room       what the machine has for pods (thousandths), asked of pods that nobody has seen
claims     the pod uses DRA claims
says       the lines of the explanation, all of them
rules      the rule by which each merge's winner won
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from agent.core.admission.node import Node
from agent.core.admission.waiting import Waiting
from agent.core.devices.kubelet import Given, Offered, handed_over, places
from agent.core.explain.case import Case
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import Explanation
from agent.core.request.exempt import Exemptions
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.node.deciding import checked_settings, decided
from agent.node.obstacle import with_obstacle
from agent.node.tracked_pod import SWITCHES, TrackedPod
from tests.world.nodes import managers_of

FOLDER = Path(__file__).parent / "explain"
MERGES = FOLDER / "merges.txt"
"""What all cases show; to write it anew after a change that was meant: python -m tests.unit.explain_cases"""
KEYS = {"name", "machine", "settings", "devices", "before", "ended", "after", "given", "pod", "line", "ran", "seen",
        "room", "claims", "says", "rules"}  # fmt: skip


@dataclass
class Told:
    """A case carried out."""

    node: Node
    ledger: Ledger
    pod: Pod
    found: Explanation
    given: Given


def cases(file: str) -> Iterator[dict[str, Any]]:
    """The cases of a file, checked for typing errors."""
    for case in yaml.safe_load((FOLDER / file).read_text(encoding="utf-8")):
        assert not set(case) - KEYS, f"{case['name']}: {set(case) - KEYS}"
        yield case


def node_of(case: Mapping[str, Any]) -> Node:
    """The managers of a case."""
    node = managers_of(case["machine"], case.get("settings"))
    reported = [
        (resource, name, NodeSet.of(node))
        for resource, devices in case.get("devices", {}).items()
        for name, node in devices.items()
    ]
    return node.with_inventory(node.inventory.with_reported(reported)) if reported else node


def pod_of(body: Mapping[str, Any], number: int) -> Pod:
    """A pod from the short form."""
    containers = body.get("containers") or [
        {"name": "app", **{key: body[key] for key in ("limits", "requests") if key in body}}
    ]
    spec = {
        key: [
            {**{k: v for k, v in each.items() if k not in {"limits", "requests"}},
             "resources": {k: each[k] for k in ("limits", "requests") if k in each}}
            for each in found
        ]
        for key, found in (("containers", containers), ("initContainers", body.get("initContainers", [])))
    }  # fmt: skip
    metadata = {
        "name": body["name"], "namespace": body.get("namespace", "shop"), "uid": body["name"],
        "annotations": {f"numalign.io/{key}": value for key, value in body.get("annotations", {}).items()},
        "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
    }  # fmt: skip
    return pod_from({"metadata": metadata, "spec": {**spec, **body.get("spec", {})}})


def carried_out(case: Mapping[str, Any]) -> Told:
    """Let the pods come and go as the engine does, and explain the pod."""
    node = node_of(case)
    ledger = node.start()
    number = 0
    given: Given = {"app": tuple(_offered(case))} if "given" in case else {}

    def come(body: Mapping[str, Any], *, ran: bool = False, line: list[Waiting] | None = None) -> TrackedPod:
        nonlocal ledger, number
        number += 1
        pod = pod_of(body, number)
        exempt = Exemptions().why(pod)
        known, before = TrackedPod(pod, checked_settings(node, pod), exempt=exempt, ran=ran), ledger
        mine = given if body is case["pod"] else None
        ledger, known = decided(
            node, ledger, known, given=mine, unwritable="", switches=SWITCHES, now=1000.0, line=line or [],
        )  # fmt: skip
        return with_obstacle(node, before, known, mine)

    for body in _repeated(case.get("before", [])):
        assert come(body).refusal is None, f"{body['name']} of before did not get in"
    line = []
    for place, body in enumerate(case.get("line", [])):
        known = come(body)
        assert known.refusal is not None, f"{body['name']} need not wait"
        line.append(Waiting(known.pod, known.settings, float(place)))
    if not case.get("seen", True):
        number += 1
        pod = pod_of(case["pod"], number)
        standing = PodStanding(hypothetical=True, room=case.get("room"), claims=case.get("claims", False))
        return Told(node, ledger, pod, explain(node, ledger, pod, standing=standing), {})
    known = come(case["pod"], ran=case.get("ran", False), line=line)
    for body in case.get("after", []):
        come(body)
    for name in case.get("ended", []):
        ledger = node.release(ledger, name)
    standing = PodStanding(refusal=known.refusal, exempt=known.exempt, given=given)
    found = explain(node, ledger, known.pod, settings=known.settings, standing=standing)
    return Told(node, ledger, known.pod, found, given)


def shown(case: Mapping[str, Any]) -> Iterator[str]:
    """What numalign explains beside the sentences: what each provider said, who won each merge by what, who lost."""
    for merge in carried_out(case).found.merges:
        yield f"{case['name']}, {merge.container or 'the pod'}"
        for said in merge.hint_lists:
            counts = [said.size, said.least, said.preferred_count, said.other_count]
            numbers = f" (size, least, preferred, others: {counts})" if said.hints is not None else ""
            yield f"  {said.provider} {said.resource or '-'}, {said.stand.value}: {said.sentence}{numbers}"
        flags = [name for name in ("preferred", "admit", "exact") if getattr(merge, name)]
        yield f"  > {merge.winner if merge.winner is not None else 'any'} {flags}: {merge.rule_text}"
        yield from (f"  - {each.nodes} {each.why.value} by {', '.join(each.by) or '-'}" for each in merge.losers)
        if merge.more_losers:
            yield f"  - and {merge.more_losers} more"
        yield from (f"  ! {each}" for each in merge.obstacles)


def _repeated(bodies: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """`times: 3` stands for three pods, numbered."""
    for body in bodies:
        times = body.get("times", 0)
        yield from ({**body, "name": f"{body['name']}-{each}"} for each in range(times)) if times else [body]


def _offered(case: Mapping[str, Any]) -> Iterator[Offered]:
    for resource, names in case["given"].items():
        for name in names:
            yield Offered(resource, name, NodeSet.of(case["devices"][resource][name]))


def again(told: Told, found: Explanation) -> Case:
    """The admission that the remedies of an explanation were found on."""
    settings = checked_settings(told.node, told.pod)
    given = places(told.ledger, told.node.inventory, told.pod.uid) or told.given
    ledger = told.node.release(told.ledger, told.pod.uid)
    asking = replace(settings, policy=found.policy)
    return Case(handed_over(ledger, told.pod, given) if given else ledger, told.pod, asking)


def every() -> str:
    """What all cases show."""
    files = sorted(FOLDER.glob("*.yaml"))
    return "".join(f"{line}\n" for file in files for case in cases(file.name) for line in shown(case))


if __name__ == "__main__":
    MERGES.write_text(every(), encoding="utf-8")
