"""A file that is no sequence is refused with one sentence that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.referee.sequence import BadSequenceError, read, read_all

POD = "{create: a, containers: {app: {cpu: 1}}, expect: {app: {cpus: 2, mems: any}}, shared: 0-1}"
HEAD = "about: A sentence about it.\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("about: [", "cannot be read"),
        ("- a", "is no mapping"),
        ("about: A sentence about it.\nsteps: []", "steps: Tuple should have at least 1 item"),
        ("steps: []", "about: Field required"),
        (f"{HEAD}stepz: []\nsteps: [{POD}]", "stepz: Extra inputs are not permitted"),
        (f"{HEAD}about: Another sentence.\nsteps: [{POD}]", "given twice: about"),
        (f"{HEAD}machine: moon\nsteps: [{POD}]", "machine: moon is not one of lab"),
        (f"{HEAD}config: {{cpuManagerPolicy: static}}\nsteps: [{POD}]", "cpuManagerPolicy is so anyway"),
        (f"{HEAD}steps: [{POD}, {POD}]", "step 2: there is a pod a already"),
        (f"{HEAD}steps: [{{delete: a, shared: 0}}]", "step 1: delete a: no such pod"),
        (f"{HEAD}steps: [{POD}, {{finish: a/b, shared: 0}}]", "step 2: finish a/b: the pod has no such container"),
        (f"{HEAD}steps: [{{shared: 0}}]", "steps.1: does one of create, delete, finish, restart; this one has none"),
        (f"{HEAD}steps: [{{restart: node, refused: x, shared: 0}}]", "steps.1: restart: takes shared only"),
        (f"{HEAD}steps: [{POD.replace('shared: 0-1', 'shared: 1-0')}]", "steps.1.shared:"),
        (f"{HEAD}steps: [{POD.replace('cpus: 2', 'cpus: two')}]", "steps.1.expect.app.cpus:"),
        (f"{HEAD}steps: [{POD.replace('cpus: 2', 'cpus: 2.5')}]", "2.5"),
        (f"{HEAD}steps: [{POD.replace('expect: {app', 'expect: {ape')}]", "has a line for every container"),
        (f"{HEAD}steps: [{POD.replace('shared: 0-1', 'refused: x, shared: 0')}]", "needs either expect"),
        (f"{HEAD}steps: [{{create: a, containers: {{app: {{}}}}, refused: x, shared: 0}}]", "x is no reason"),
        (f"{HEAD}steps: [{{create: a, refused: TopologyAffinityError, shared: 0}}]", "a pod needs containers"),
        (f"{HEAD}steps: [{POD.replace('expect', 'says: x, expect')}]", "says: is of a refusal"),
        (f"{HEAD}steps: [{POD.replace('containers', 'init: {app: {}}, containers')}]", "app: the name of an init"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    """The file, the place in it, and what to write instead."""
    path = tmp_path / "wrong.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(BadSequenceError) as caught:
        read(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    """No file at all would make every test of the files pass."""
    with pytest.raises(BadSequenceError, match="holds no sequence"):
        read_all(tmp_path)
