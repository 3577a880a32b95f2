"""The judge of double faults: whatever must never happen is found in a journal, and called what it is."""

from __future__ import annotations

from typing import Any

import pytest

from agent.kube.pod_report import ALIGNED, ASSIGNMENT, CONDITION
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from tests.matrix.journal import Line
from tests.matrix.judge import LAG, disagreement, faults, untrue
from tests.matrix.kubelet import Running
from tests.world.manifests import container, manifest

LOOK: Line = {"by": "agent", "do": "looked"}


def begins(uid: str, cpus: str) -> list[Line]:
    """A container is made in a cgroup of its pod's name, and runs."""
    return [
        {"by": "kubelet", "do": "container", "uid": uid, "name": "app", "path": uid},
        {"by": "kubelet", "do": "mkdir", "path": uid, "now": {uid: cpus}},
        {"by": "kubelet", "do": "runs", "path": uid},
    ]


def writes(uid: str, cpus: str, by: str = "agent") -> Line:
    """A set is written into the cgroup of a pod's container."""
    return {"by": by, "do": "write", "path": uid, "file": "cpuset.cpus", "value": cpus, "now": {uid: cpus}}


def saves(**cpus: str) -> Line:
    """A ledger is saved: pod -> CPUs of its container."""
    return {"by": "agent", "do": "saved", "assigned": {uid: {"app": each} for uid, each in cpus.items()}}


def tells(uid: str, cpus: str) -> Line:
    """A pod is told that it is aligned, and its CPUs."""
    return {"by": "agent", "do": "told", "uid": uid, "name": uid, "aligned": True, "cpus": {"app": cpus}}


ONLINE: Line = {"by": "kernel", "do": "online", "now": {"": "0-15"}}
LESS: Line = {"by": "kernel", "do": "online", "now": {"": "0-2,4-15", "db": "2"}}
"""CPU 3 goes offline."""
BEGUN = [ONLINE, saves(db="2-3"), *begins("db", "2-3")]
"""A pod runs on its own CPUs, as saved."""
NEVER: dict[str, list[Line]] = {
    "moved (line 6, by agent): db/app ran on 2-3 (its own: 2-3), now 4-5": [writes("db", "4-5")],
    "taken (line 9, by agent): web/app gets CPUs 3 of db/app": [*begins("web", "6-7"), writes("web", "3,6")],
    "twice (line 6, by agent): web/app is granted 3-4; db/app runs on 2-3": [saves(db="2-3", web="3-4")],
    "twice (line 6, by agent): web/app is granted 3-4, and db holds 2-3": [saves(db="2-3", web="3-4")],
    "freed (line 6, by agent): db/app lives, and its CPUs 2-3 are in no saved ledger": [saves()],
    "replaced (line 6, by agent): db/app holds 2-3, and is granted 4-5": [saves(db="4-5")],
    "untrue (line 10, by agent): db/app is told 15, and it has run on 2-3 for 4 looks": [
        *[LOOK] * (LAG + 1), tells("db", "15"),
    ],
}  # fmt: skip
ALLOWED: dict[str, list[Line]] = {
    "it is told what it has": [*[LOOK] * (LAG + 1), tells("db", "2-3")],
    "a word is on its way": [*[LOOK] * LAG, tells("db", "15")],
    "systemd resets a set, and the agent writes it again": [writes("db", "0-15", "systemd"), writes("db", "2-3")],
    "a CPU goes offline": [LESS, saves(db="2")],
    "a resize gives it less": [{"by": "test", "do": "resized", "uid": "db", "container": "app"}, saves(db="2")],
    "it ends": [{"by": "kubelet", "do": "rmdir", "path": "db", "now": {}}, saves()],
    "the ledger was lost": [{"by": "test", "do": "lost"}, saves()],
}


@pytest.mark.parametrize(("sentence", "lines"), NEVER.items())
def test_what_must_never_happen_is_found(sentence: str, lines: list[Line]) -> None:
    """A pod is moved, its CPUs are taken, granted twice, freed or replaced, or it is told what is untrue."""
    assert sentence in "\n".join(faults([*BEGUN, *lines]))


@pytest.mark.parametrize("lines", ALLOWED.values(), ids=ALLOWED)
def test_what_may_happen_is_no_fault(lines: list[Line]) -> None:
    """The kernel and systemd take CPUs, a resize changes a grant, and what has ended is freed."""
    assert faults([*BEGUN, *lines]) == []


def stored(cpus: str = "2-3") -> dict[str, Any]:
    """A pod of two CPUs as the API has it, told that it has some."""
    body = manifest("db", container(cpu="2"))
    body["metadata"]["annotations"] = {ASSIGNMENT: f'{{"containers": {{"app": {{"cpus": "{cpus}"}}}}}}'}
    condition = {"type": CONDITION, "status": "True", "reason": ALIGNED}
    return {**body, "status": {"qosClass": "Guaranteed", "conditions": [condition]}}


def books(shared: str = "0-1,4-15", **cpus: str) -> Ledger:
    """A saved ledger: pod -> CPUs of its container."""
    held = {uid: {"app": CpuSet.parse(each)} for uid, each in cpus.items()}
    return Ledger("", CpuBooks(CpuSet.parse(shared), assigned=held))


@pytest.mark.parametrize(
    ("body", "ledger", "runs", "sentence"),
    [
        (stored(), books(db="2-3"), "2-3", ""),
        (stored(), None, "2-3", "there is no saved ledger"),
        ({**stored(), "status": {}}, books(db="2-3"), "2-3", "space/db was told nothing"),
        (stored(), books(), "0-15", "space/db/app is entitled to 2 CPUs, and holds none in the ledger"),
        (stored(), books(db="2-3"), "0-15", "space/db/app holds 2-3 in the ledger, and runs on 0-15"),
        (stored("15"), books(db="2-3"), "2-3", "space/db/app holds 2-3, and is told 15"),
    ],
)
def test_what_does_not_agree_is_named(body: dict[str, Any], ledger: Ledger | None, runs: str, sentence: str) -> None:
    """Ledger, cgroups and annotations of a node that is quiet are compared."""
    pods = {"space/db": Running(body, numbers={"app": "1"})}
    seen = disagreement(pods, {"space/db": body}, lambda: ledger, lambda _key, _name: runs, lambda _cpus: False)
    assert seen == sentence


def test_a_pod_that_is_told_too_much_is_named() -> None:
    """At any moment, what a pod claims is what the kernel gives it."""
    pods = {"space/db": Running(stored(), numbers={"app": "1"})}
    seen = untrue(pods, {"space/db": stored("15")}, lambda _key, _name: "2-3")
    assert seen == "space/db/app is told that it has CPUs 15, and runs on 2-3"
    assert untrue(pods, {"space/db": stored()}, lambda _key, _name: "2-3") == ""
