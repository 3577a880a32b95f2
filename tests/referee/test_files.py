"""Every sequence file: our engine and the kubelet's managers do what it expects, and every expectation counts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.model.idset import IdSet
from agent.model.rules import Minor
from tests.peers.oracle import NoOracleError, answer, oracle
from tests.referee import vectors
from tests.referee.engine_node import EngineNode
from tests.referee.generate import answered, generate, overfull
from tests.referee.running import Seen, compare, run
from tests.referee.sequence import ANY, REASONS, SHARED, Sequence, Step, read, read_all, text_of
from tests.referee.shapes import MEMORY

FILES = read_all()
BY_NAME = {sequence.name: sequence for sequence in FILES}
SEEDS = range(20_261_121, 20_261_133)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", BY_NAME)
def test_our_engine_does_what_the_file_expects(name: str, memory: str) -> None:
    """Placement, quota, refusal and pool, read back from cgroups, whether nodes have little or much memory."""
    assert compare(BY_NAME[name], _engine(name, memory)) == ()


@cache
def _engine(name: str, memory: str) -> tuple[Seen, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return run(BY_NAME[name], EngineNode(Path(folder), BY_NAME[name], memory))


@pytest.mark.go
def test_the_kubelets_managers_do_what_every_file_expects() -> None:
    """The same steps through the managers of the kubelet v1.36.3 themselves, with little and with much memory."""
    made = [(sequence, memory) for sequence in read_all(minor=int(Minor.V1_36)) for memory in MEMORY]
    for (sequence, _), got in zip(made, _kubelet(made), strict=True):
        assert compare(sequence, got) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_pods_on_our_engine(tmp_path: Path, seed: int) -> None:
    """Random pods; what the pure core answers is what the whole engine leaves in the cgroups."""
    print(f"seed {seed}: python -m tests.referee {seed}")
    sequence = generate(seed)
    assert compare(sequence, run(sequence, EngineNode(tmp_path, sequence))) == ()


@pytest.mark.go
def test_random_pods_through_the_kubelets_managers() -> None:
    """200 random sequences are answered by the kubelet's managers as by our core, on both sizes of nodes."""
    made = [(generate(seed, steps=14), memory) for seed in range(1000, 1100) for memory in MEMORY]
    for (sequence, _), got in zip(made, _kubelet(made), strict=True):
        assert compare(sequence, got) == (), f"{sequence.name}, 14 steps: {text_of(sequence)}"


def _kubelet(made: list[tuple[Sequence, str]]) -> list[tuple[Seen, ...]]:
    try:
        program = oracle()
    except NoOracleError as why:
        pytest.skip(str(why))
    asked = [{"family": "node", "id": each.name, "input": vectors.vector_of(each, memory)} for each, memory in made]
    answers = answer(program, asked)
    assert not any(each.get("quirks") for each in answers), "the kubelet breaks its own rules in one of them"
    return [vectors.trace_of(each, got["expected"]) for (each, _), got in zip(made, answers, strict=True)]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_file_fails_when_any_expected_set_is_altered(name: str) -> None:
    """Every CPU set, node set, quota, pool and refusal: what the engine does no longer matches the altered file."""
    trace = _engine(name, MEMORY[-1])
    unnoticed = [what for what, altered in _alterations(BY_NAME[name]) if not compare(altered, trace)]
    assert unnoticed == []


def _alterations(sequence: Sequence) -> Iterator[tuple[str, Sequence]]:
    for index, step in enumerate(sequence.steps):
        for what, other in _altered(step):
            steps = (*sequence.steps[:index], other, *sequence.steps[index + 1 :])
            yield f"step {index + 1}: {what}", sequence.model_copy(update={"steps": steps})


def _altered(step: Step) -> Iterator[tuple[str, Step]]:
    yield "shared", step.model_copy(update={"shared": _other(step.shared)})
    if step.refused:
        other = next(reason for reason in REASONS if reason != step.refused)
        yield "refused, another reason", step.model_copy(update={"refused": other})
        yield "refused, admitted", step.model_copy(update={"refused": "", "expect": {}})
    if step.says:
        yield "says", step.model_copy(update={"says": step.says + "!"})
    if step.pod_quota:
        yield "pod quota", step.model_copy(update={"pod_quota": "7"})
    for name, expected in (step.expect or {}).items():
        changes: dict[str, Any] = {"cpus": _other(expected.cpus, SHARED), "mems": _other(expected.mems, ANY)}
        if expected.quota:
            changes["quota"] = "7"
        for key, value in changes.items():
            others = {**(step.expect or {}), name: expected.model_copy(update={key: value})}
            yield f"{name}.{key}", step.model_copy(update={"expect": others})
    if step.expect:
        yield "admitted, refused", step.model_copy(update={"expect": None, "refused": REASONS[0]})


def _other(text: str, word: str = "") -> str:
    """One id more or less; a set for a word."""
    ids = set(IdSet.parse("" if text == word else text))
    return str(IdSet.from_ids(ids ^ {1}))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_file_expects_what_our_core_answers(tmp_path: Path, name: str) -> None:
    """No expectation is by hand what our core would not say; and what the program writes is the same sequence."""
    sequence, path = BY_NAME[name], tmp_path / f"{name}.yaml"
    assert answered(sequence) == sequence
    path.write_text(text_of(sequence), "utf-8")
    assert read(path) == sequence


@pytest.mark.parametrize("name", BY_NAME)
def test_no_step_asks_for_more_than_the_node_offers(name: str) -> None:
    """A real kubelet would refuse it for reasons that no manager has (OutOfcpu, OutOfmemory)."""
    steps = BY_NAME[name].steps
    assert [n for n in range(1, len(steps) + 1) if overfull(list(steps[:n]), BY_NAME[name].machine)] == []


def test_a_seed_is_a_sequence() -> None:
    """The same seed makes the same file, another one another."""
    texts = [text_of(generate(seed)) for seed in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


@cache
def _shapes() -> frozenset[str]:
    steps = [step for sequence in FILES for step in sequence.steps]
    found = {f"policy {sequence.config.get('topologyManagerPolicy', 'best-effort')}" for sequence in FILES}
    found |= {f"scope {sequence.config.get('topologyManagerScope', 'container')}" for sequence in FILES}
    found |= {act.split(" ")[0] for act in (step.act for step in steps)}
    found |= {step.refused for step in steps} | {"sidecar" for step in steps for i in step.init.values() if i.sidecar}
    found |= {"init" for step in steps if step.init} | {"pod-level" for step in steps if step.resources}
    return frozenset(found | {key for step in steps for c in step.containers.values() for key in c.limits})


def test_the_files_cover_what_they_are_there_for() -> None:
    """All policies and scopes, kinds of containers, resources, refusals and events occur; there are at least 45."""
    wanted = {f"policy {each}" for each in ("none", "best-effort", "restricted", "single-numa-node")}
    wanted |= {
        "scope pod",
        "scope container",
        "create",
        "delete",
        "finish",
        "restart",
        "init",
        "sidecar",
        "pod-level",
    }
    wanted |= {"cpu", "memory", "hugepages-2Mi", "lab.example.com/nic1", *REASONS} - {"EmptyPodSharedPoolError"}
    assert wanted <= _shapes()
    assert len(FILES) >= 45
