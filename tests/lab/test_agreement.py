"""The referee of the faults is refereed: it finds each kind of disagreement, and nothing where all agree."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.pod import Container, Pod, Qos
from tests.lab import agreement
from tests.lab.agreement import Look, disagreements, look, moved, parsed

Object = dict[str, Any]
A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
RESERVED = CpuSet.of(0, 1)


def cpus(text: str) -> CpuSet:
    """A set."""
    return CpuSet.parse(text)


def record(uid: str, name: str) -> PodRecord:
    """A Guaranteed pod of one container."""
    pod = Pod(uid, name, "default", (Container("c"),), Qos.GUARANTEED)
    return PodRecord(pod, "best-effort", "container")


LEDGER = Ledger(
    "m", CpuBooks(cpus("0-1,5-7"), assigned={A: {"c": cpus("2-3")}, B: {"c": cpus("4")}}),
    memory=MemoryBooks(blocks={A: {"c": (Block("memory", 1, NodeSet.of(0)),)}}),
    pods={A: record(A, "a"), B: record(B, "b"), C: record(C, "c")},
)  # fmt: skip


def cgroup(uid: str, letter: str, text: str, mems: str = "0-1") -> agreement.Container:
    """A container's cgroup with one thread."""
    return agreement.Container(uid, letter * 64, cpus(text), NodeSet.parse(mems), threads={1: cpus(text)})


LOOK = Look(
    cpus("0-7"), LEDGER,
    (cgroup(A, "a", "2-3", "0"), cgroup(A, "1", "0-1,5-7"), cgroup(B, "b", "4"), cgroup(C, "c", "0-1,5-7")),
    why="",
)  # fmt: skip


def body(uid: str, name: str, held: str) -> Object:
    """A running pod that carries what it holds."""
    said = {"containers": {"c": {"cpus": held or "shared"}}}
    notes = {"numalign.io/assignment": json.dumps(said), **({"numalign.io/cpus": held} if held else {})}
    return {
        "metadata": {"uid": uid, "name": name, "namespace": "default", "annotations": notes},
        "status": {
            "phase": "Running", "containerStatuses": [{"name": "c", "containerID": f"containerd://{name * 64}"}],
        },
    }  # fmt: skip


def bodies() -> list[Object]:
    """The three pods as the API has them."""
    return [body(A, "a", "2-3"), body(B, "b", "4"), body(C, "c", "")]


def with_cpus(**changes: Any) -> Look:  # noqa: ANN401 - fields of CpuBooks
    """Everything in order but some of the CPU books."""
    return replace(LOOK, ledger=replace(LEDGER, cpus=replace(LEDGER.cpus, **changes)))


def with_cgroup(number: int, **changes: Any) -> Look:  # noqa: ANN401 - fields of Container
    """Everything in order but one cgroup."""
    found = list(LOOK.containers)
    found[number] = replace(found[number], **changes)
    return replace(LOOK, containers=tuple(found))


def without(index: int) -> list[Object]:
    """The API lacks one pod."""
    found = bodies()
    del found[index]
    return found


def noted(key: str, value: str) -> list[Object]:
    """The first pod carries something else."""
    found = bodies()
    found[0]["metadata"]["annotations"][key] = value
    return found


def ended() -> list[Object]:
    """The second pod has failed."""
    found = bodies()
    found[1]["status"]["phase"] = "Failed"
    return found


OWN = LEDGER.cpus.assigned
CASES: dict[str, tuple[Look, Callable[[], list[Object]], str]] = {
    "no ledger": (replace(LOOK, ledger=None, why="torn"), bodies, "there is no ledger: torn"),
    "two pods, one CPU": (
        with_cpus(assigned={**OWN, B: {"c": cpus("3")}}), bodies, "gives CPUs 3 to default/a and to default/b",
    ),
    "shared and exclusive": (with_cpus(shared=cpus("0-2,5-7")), bodies, "shares CPUs 2 of default/a"),
    "reserved": (with_cpus(assigned={**OWN, B: {"c": cpus("1")}}), bodies, "reserved CPUs 1 to default/b"),
    "leaked CPU": (with_cpus(shared=cpus("0-1,5-6")), bodies, "CPUs 7 are lost"),
    "offline in the pool": (replace(LOOK, online=cpus("0-6")), bodies, "CPUs 7 are shared and not online"),
    "two on one CPU": (with_cgroup(2, cpus=cpus("3")), bodies, "both run on CPUs 3"),
    "elsewhere": (with_cgroup(0, cpus=cpus("2")), bodies, "runs on CPUs 2, the ledger gives it 2-3"),
    "outside the pool": (with_cgroup(3, cpus=cpus("0-7")), bodies, "of which 2-4 are not shared"),
    "a sandbox outside the pool": (with_cgroup(1, cpus=cpus("2-3"), id="9" * 64), bodies, "are not shared"),
    "nobody's cgroup": (
        replace(LOOK, containers=(*LOOK.containers, cgroup("d" * 36, "d", "2"))), bodies,
        "of pod dddddddddddddddddddddddddddddddddddd runs on CPUs 2, of which 2 are not shared",
    ),
    "a quota": (with_cgroup(0, quota="200000 100000"), bodies, "and a quota, 200000 100000"),
    "memory elsewhere": (with_cgroup(0, mems=NodeSet.of(1)), bodies, "uses memory of nodes 1, the ledger gives it 0"),
    "a thread that roams": (with_cgroup(2, threads={77: cpus("0-7")}), bodies, "thread 77 of container c"),
    "leaked pod": (
        replace(LOOK, containers=LOOK.containers[:2]), lambda: without(1), "default/b is in the ledger, and neither",
    ),
    "ended pod": (replace(LOOK, containers=LOOK.containers[:2]), ended, "default/b has ended and is still"),
    "forgotten pod": (
        replace(LOOK, ledger=replace(LEDGER, pods={A: LEDGER.pods[A], B: LEDGER.pods[B]})), bodies,
        "default/c runs and is not in the ledger",
    ),
    "annotation": (LOOK, lambda: noted("numalign.io/cpus", "4"), 'holds CPUs "2-3", and its annotation says "4"'),
    "assignment": (
        LOOK, lambda: noted("numalign.io/assignment", '{"containers": {"c": {"cpus": "4"}}}'), "its assignment says",
    ),
    "broken assignment": (LOOK, lambda: noted("numalign.io/assignment", "[]"), "that is no JSON object"),
}  # fmt: skip


def test_all_agree() -> None:
    """A node in order has no disagreement, its pods listed in whatever order."""
    assert disagreements(LOOK, bodies(), RESERVED) == []
    assert disagreements(LOOK, reversed(bodies()), RESERVED) == []


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_disagreement_is_found(name: str) -> None:
    """One thing is wrong: a sentence names it."""
    seen, pods, sentence = CASES[name]
    found = disagreements(seen, pods(), RESERVED)
    assert any(sentence in each for each in found), found


def test_a_mixed_set_agrees_with_its_two_parts() -> None:
    """Own and shared CPUs in one cgroup: those reserved apart from the pool, too, where two mixed ones meet."""
    parts = {A: {"c": cpus("7")}, B: {"c": cpus("7")}}
    look = with_cpus(shared=cpus("0-1,5-6"), mixed=parts)
    found = [replace(each, cpus=cpus(text), threads={}) for each, text in zip(
        look.containers, ("2-3,7", "0-1,5-6", "4,7", "0-1,5-6"), strict=True)]  # fmt: skip
    whole = replace(look, containers=tuple(found))
    said = agreement.disagreements(whole, bodies(), reserved=cpus("7"))
    assert said == ["CPUs 7 are lost: neither shared nor anybody's"]  # this judge knows no strict reservation
    alone = replace(whole, containers=(replace(found[0], cpus=cpus("2-3")), *found[1:]))
    assert "container c of default/a runs on CPUs 2-3, the ledger gives it 2-3,7" in " ".join(
        agreement.disagreements(alone, bodies(), reserved=cpus("7"))
    )


def test_annotations_do_not_count_while_nobody_can_write_them() -> None:
    """With the API server away, ledger and kernel alone are compared."""
    assert disagreements(LOOK, noted("numalign.io/cpus", "4"), RESERVED, told=False) == []


def test_a_forced_pod_keeps_its_cpus_while_its_processes_live() -> None:
    """Not in the API any more, but in ledger and kernel: that is as it should be."""
    assert disagreements(LOOK, without(1), RESERVED) == []


def test_a_new_container_is_known_by_what_it_runs_on() -> None:
    """A restarted container, whose id the API does not have yet, is no stranger on its pod's CPUs."""
    assert disagreements(with_cgroup(0, id="9" * 64), bodies(), RESERVED) == []


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (LOOK, ""),
        (with_cgroup(0, cpus=cpus("5-6")), "was moved from CPUs 2-3 to 5-6"),
        (with_cgroup(0, cpus=cpus("2")), "was moved from CPUs 2-3 to 2"),
        (with_cgroup(0, mems=NodeSet.of(1)), "was moved from nodes 0 to 1"),
        (with_cpus(assigned={**OWN, B: {"c": cpus("5")}}), "had CPUs 4 and now has 5"),
        (with_cpus(assigned={A: OWN[A]}), "had CPUs 4 and now has None"),
        (with_cgroup(3, cpus=cpus("0-1")), ""),  # the pool may change
        (replace(LOOK, ledger=None, why="torn"), "there is no ledger: torn"),
    ],
)
def test_what_moved_is_found(after: Look, sentence: str) -> None:
    """Whoever has CPUs of his own must have the same ones, in the ledger and in the kernel."""
    found = moved(LOOK, after)
    assert any(sentence in each for each in found) if sentence else not found, found


def test_memory_that_is_bound_at_last_has_not_moved() -> None:
    """A container that started without its nodes is bound once its pages elsewhere have gone; to its grant alone."""
    stuck = with_cgroup(0, mems=NodeSet.of(0, 1), pages=NodeSet.of(1))
    assert moved(stuck, LOOK) == []
    assert moved(stuck, with_cgroup(0, mems=NodeSet.of(1)))
    assert moved(with_cgroup(0, mems=NodeSet.of(0, 1), pages=NodeSet.of(0)), LOOK)


def test_a_cpu_that_went_offline_may_be_lost_and_no_other() -> None:
    """Three of CPUs 2-3 offline: 2 is left; 5 in its place would be a move."""
    smaller = replace(with_cgroup(0, cpus=cpus("2")), ledger=with_cpus(assigned={**OWN, A: {"c": cpus("2")}}).ledger)
    assert moved(LOOK, smaller, lost=CpuSet.of(3)) == []
    assert moved(LOOK, with_cgroup(0, cpus=cpus("2,5")), lost=CpuSet.of(3))


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods.slice/kubepods-pod{A.replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope",
        f"/kubepods.slice/kubepods-pod{A.replace('-', '_')}.slice/crio-{'a' * 64}.scope",
        f"/kubepods/pod{A}/{'a' * 64}",
    ],
)
def test_what_a_guest_says_is_read(path: str, tmp_path: Path) -> None:
    """The program that runs in a guest, on this machine: its answer is JSON, with any driver's cgroups."""
    done = subprocess.run([sys.executable, "-I", agreement.LOOK], capture_output=True, check=True)
    assert parsed(json.loads(done.stdout)).online
    Checkpoint(tmp_path / "checkpoint.json").save(LEDGER)
    told = {
        "online": "0-7", "agents": [7], "aside": ["checkpoint.json.corrupt-1"],
        "checkpoint": base64.b64encode((tmp_path / "checkpoint.json").read_bytes()).decode(),
        "containers": [
            {
                "path": path, "cpuset.cpus": "2-3", "cpuset.cpus.effective": "2-3", "cpuset.mems": "0",
                "cpuset.mems.effective": "0", "cpu.max": "max 100000", "threads": {"1": "2-3"}, "pages": [],
            },
            {"path": "/kubepods.slice/else.scope"},
        ],
    }  # fmt: skip

    class Node:
        def run(self, command: str, data: bytes | str = b"", *, seconds: float = 120) -> str:
            return json.dumps(told)

    seen = look(Node())
    assert seen == Look(cpus("0-7"), LEDGER, LOOK.containers[:1], "", ("checkpoint.json.corrupt-1",), (7,))
    told["checkpoint"] = base64.b64encode(b"{}").decode()
    assert "is no ledger of numalign" in look(Node()).why


def test_memory_that_is_there_already_is_not_asked_to_move() -> None:
    """A container with pages on another node keeps its nodes: the kernel would move them at once (S4)."""
    seen = with_cgroup(0, mems=NodeSet.of(0, 1), pages=NodeSet.of(1))
    assert disagreements(seen, bodies(), RESERVED) == []
