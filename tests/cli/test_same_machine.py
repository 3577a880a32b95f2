"""A ledger is of the machine that it was served on, also when that machine's memory changed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.cli import group
from agent.host.checkpoint import Checkpoint
from tests.flow.serving import write
from tests.flow.world import container

SHAPE = "synthetic:2 sockets x 4 cores, "
BEFORE, LITTLE, MORE = f"{SHAPE}1000M per node", f"{SHAPE}1001M per node", f"{SHAPE}2000M per node"
OTHER = "synthetic:1 socket x 8 cores, 1000M per node"
COMMANDS = [("explain", "db"), ("plan", "--policy", "none"), ("state",), ("state", "--output", "svg"), ("verify",)]
EVERY = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What an agent left that had bound the memory of a pod."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2", memory="64Mi"))
    config = tmp_path / "config.yaml"
    config.write_text(
        "{memoryManagerPolicy: Static, kubeReserved: {memory: 100Mi},"
        " reservedMemory: [{numaNode: 0, limits: {memory: 200Mi}}], topologyManagerPolicy: single-numa-node}"
    )
    options = StandaloneOptions(pods=tmp_path / "pods", state=tmp_path / "state", root=BEFORE, config=config)
    with standalone_node(options) as node:
        node.once()
    return tmp_path / "state"


def asked(state: Path, machine: str, command: tuple[str, ...]) -> Result:
    """The answer of a command on this machine."""
    line = [*command, "--state-dir", str(state), "--root", machine, "--config", str(state.parent / "config.yaml")]
    return CliRunner().invoke(group, line)


def of_an_older_version(state: Path) -> None:
    """The ledger as versions saved it that kept nothing of the machine beside the digest."""
    store = Checkpoint(state / "checkpoint.json")
    saved = store.load()
    assert saved is not None
    store.save(saved.ledger, {key: value for key, value in saved.extra.items() if key != "machine"})


@EVERY
def test_some_pages_more_are_not_worth_a_word(state: Path, command: tuple[str, ...]) -> None:
    """MemTotal that moves by little changes no answer."""
    before, after = asked(state, BEFORE, command), asked(state, LITTLE, command)
    assert (after.exit_code, "memory changed" in after.output) == (0, False)
    assert before.exit_code == 0


@EVERY
def test_other_memory_is_told_and_nothing_is_refused(state: Path, command: tuple[str, ...]) -> None:
    """Twice the memory: every command answers, and all that print text say what changed."""
    after = asked(state, MORE, command)
    assert after.exit_code == 0, (after.output, after.exception)
    said = "memory changed since the ledger was saved: NUMA node 0 had 1000Mi, and has 2000Mi"
    if command[0] in ("explain", "verify") or command == ("state",):
        assert said.casefold() in " ".join(after.output.split()).casefold()


@EVERY
def test_a_ledger_of_an_older_version_is_judged_by_its_cpus(state: Path, command: tuple[str, ...]) -> None:
    """0.1.0 saved the digest alone: the same CPUs and nodes are the same machine."""
    of_an_older_version(state)
    assert asked(state, MORE, command).exit_code == 0


def test_another_machine_is_refused(state: Path) -> None:
    """Other nodes with the same CPUs are another machine, and explain and plan say so."""
    for command in COMMANDS[:2]:
        found = asked(state, OTHER, command)
        assert "name the machine that it was served on" in str(found.exception)
    shown = asked(state, OTHER, ("state",))
    assert "the ledger is of machine" in shown.output


def test_nothing_moves_when_memory_grew(state: Path) -> None:
    """The next start on the machine with more memory keeps every CPU."""
    before = json.loads(asked(state, BEFORE, ("state", "--output", "json")).output)
    options = StandaloneOptions(
        pods=state.parent / "pods", state=state, root=MORE, config=state.parent / "config.yaml"
    )
    with standalone_node(options) as node:
        node.once()
    after = json.loads(asked(state, MORE, ("state", "--output", "json")).output)
    assert [each["cpus"] for each in after["containers"]] == [each["cpus"] for each in before["containers"]]
