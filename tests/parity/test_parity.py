"""Every recorded answer of the kubelet: the project's own part always, the whole set where it is there."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from agent.core.merge.masks import Positions
from agent.core.merge.order import Order
from agent.model.hint import Hint, Stance
from agent.model.idset import NodeSet
from agent.model.rules import Minor, Policy, TopologyRules
from tests.parity import running
from tests.parity.merge import merge_as_kubelet
from tests.parity.reading import of_kubelet, read_vectors
from tests.reference import vectors

OWN = Path(__file__).parent / "vectors"
TESTS = OWN.parent.parent
PACKED = sorted(TESTS.rglob("*.jsonl.gz"))
"""Every file of answers that comes with the project: vectors, and what kubelets made of configurations."""
OLDER = ("cpu", "memory", "device", "node")
MANAGERS = ("cpu-take", "cpu", "memory", "node")
FAMILIES = ("merge", "cpu-take", "cpu", "memory", "device", "node")


@pytest.mark.parametrize("path", sorted(OWN.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_the_projects_own_part(path: Path) -> None:
    """Each vector that comes with the project is answered as the kubelet does."""
    check(path)


@pytest.mark.parametrize(
    ("minor", "family"), [(each, name) for each in (Minor.V1_34, Minor.V1_35) for name in OLDER], ids=str
)
def test_the_projects_own_part_of_an_older_kubelet(minor: Minor, family: str) -> None:
    """Kubelets 1.34 and 1.35 were asked too; merges and picked CPUs are those of 1.36."""
    check(OWN / str(minor) / f"{family}.jsonl.gz", minor)


@pytest.mark.parametrize("path", sorted((OWN / "1.37").glob("*.gz")), ids=lambda path: path.name)
def test_the_projects_own_part_of_kubelet_1_37(path: Path) -> None:
    """What 1.37 answers otherwise than 1.36, and one small case for each rule of it."""
    check(path, Minor.V1_37)


@pytest.mark.parametrize("path", sorted((OWN / "1.38").glob("*.gz")), ids=lambda path: path.name)
def test_the_projects_own_part_of_kubelet_1_38(path: Path) -> None:
    """What 1.38 answers otherwise than 1.37, answers where its rules act, and one small case for each rule of it."""
    check(path, Minor.V1_38)


@pytest.mark.parametrize("path", sorted((OWN / "edges").glob("*.gz")), ids=lambda path: path.name)
def test_the_projects_own_part_of_rare_machines(path: Path) -> None:
    """Holes, uneven and memory-only nodes, nodes and sockets that cross-cut: as kubelet 1.36 answers."""
    check(path)


def test_every_kubelet_has_its_part() -> None:
    """No folder is empty: a clone that lost its vectors proves nothing."""
    found = {folder.name: {path.name.partition(".")[0] for path in folder.glob("*.gz")} for folder in OWN.iterdir()}
    assert found["1.37"] >= {"cases", "cpu", "cpu-take", "cpu-edges", "memory", "node"}
    assert found["1.38"] >= {"cases", *(f"{edges}{each}" for edges in ("", "edges-") for each in MANAGERS)}
    assert found["edges"] >= {"crosscut", "cpu", "cpu-take", "memory", "node"}
    assert found["1.34"] == found["1.35"] == set(OLDER)
    assert {path.name.partition(".")[0] for path in OWN.glob("*.gz")} == set(FAMILIES)


@pytest.mark.parametrize("path", PACKED, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_recorded_input_ends_a_kubelet(path: Path) -> None:
    """Whoever has the project has no input that crashes a kubelet, or on which it never returns."""
    text = gzip.decompress(path.read_bytes()).decode()
    assert text
    assert not re.findall(r'"(?:panic|hang)"|runtime error:|goroutine ', text)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_set(family: str) -> None:
    """All vectors of the reference folder, of which the project holds a part."""
    check(vectors(f"{family}.jsonl.gz"))


@pytest.mark.parametrize("name", ["cpu-take", "cpu", "cpu-edges", "memory", "node"])
def test_where_kubelet_1_37_answers_otherwise(name: str) -> None:
    """The reference folder's answers of kubelet 1.37 that differ from those of 1.36."""
    check(vectors(f"1.37/{name}.jsonl.gz"), Minor.V1_37)


@pytest.mark.parametrize("name", ["merge", *(f"{edges}{each}" for edges in ("", "edges38-") for each in MANAGERS)])
def test_where_kubelet_1_38_answers_otherwise(name: str) -> None:
    """The reference folder's answers of kubelet 1.38 that differ from 1.37's, and those where its rules act."""
    check(vectors(f"1.38/{name}.jsonl.gz"), Minor.V1_38)


def test_one_small_case_for_each_rule_of_1_38() -> None:
    """The reference folder's cases.jsonl."""
    check(vectors("1.38/cases.jsonl"), Minor.V1_38)


def test_one_small_case_for_each_rule_of_1_37() -> None:
    """The reference folder's cases.jsonl."""
    check(vectors("1.37/cases.jsonl"), Minor.V1_37)


def test_machines_whose_nodes_and_sockets_cross_cut() -> None:
    """Seven answers of the reference folder for machines where a node lies in several sockets."""
    check(vectors("edges-crosscut.jsonl"))


def test_the_projects_part_is_small() -> None:
    """All families together stay below 1.1 MB, so that a clone stays small."""
    assert sum(path.stat().st_size for path in OWN.rglob("*.gz")) <= 1_100_000


def test_merges_that_were_made_by_hand() -> None:
    """The reference folder's managers/merge.json: 800 inputs, each under four policies."""
    for number, case in enumerate(json.loads(vectors("managers/merge.json").read_text())):
        positions, order = Positions.of(case["nodes"]), Order(case["distances"])
        answers = [_answer(provider) for provider in case["providers"] or []]
        for policy, (nodes, preferred, admit) in case["expect"].items():
            rules = TopologyRules(Policy(policy), prefer_closest=case["prefer_closest"])
            merged = merge_as_kubelet(answers, positions, rules, order)
            expected = Hint(None if nodes is None else NodeSet.of(*nodes), preferred)
            assert (merged.hint, merged.admit) == (expected, admit), f"case {number}, {policy}"


def check(path: Path, minor: Minor = Minor.V1_36) -> None:
    """Run a file of one kubelet's answers."""
    running.check(of_kubelet(read_vectors(path), minor))


def _answer(provider: dict[str, list[list[object]] | None] | None) -> dict[str, tuple[Hint, ...] | Stance]:
    offers: dict[str, tuple[Hint, ...] | Stance] = {}
    for resource, hints in (provider or {}).items():
        if hints is None:
            offers[resource] = Stance.NO_PREFERENCE
        else:
            offers[resource] = tuple(_hint(raw) for raw in hints) or Stance.IMPOSSIBLE
    return offers


def _hint(raw: list[object]) -> Hint:
    nodes, preferred = raw
    return Hint(NodeSet.of(*nodes) if isinstance(nodes, list) else None, bool(preferred))
