"""Machines of one core, of one CPU, of one NUMA node: what is reserved there, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.app.setup import Setup, made
from agent.app.statedir.node_allocatable import NodeAllocatable, sentences
from agent.cli import explain, plan, run, simulate
from agent.cli.config import command as config
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SettingsError
from agent.settings import parse

POD = """apiVersion: v1
kind: Pod
metadata: {name: solver, uid: u1}
spec:
  containers:
  - {name: c, resources: {limits: {cpu: 1, memory: 64Mi}}}
"""
ONE_CPU = "this machine has one CPU: none is reserved, no pod gets a CPU of its own, and all pods share it"
ONE_CORE = "the one core of this machine has all its {} CPUs: numalign reserves one CPU instead of the whole core"


def setup(machine: str, kept: NodeAllocatable | None = None, **settings: object) -> Setup:
    """Settings on a described machine, with what its Node says."""
    return made(parse(settings)[0], parse_synthetic(f"1 socket x {machine}, 8G per node"), (), kept)


@pytest.mark.parametrize("kept", [None, NodeAllocatable(), NodeAllocatable(0, 100 << 20, known=True)])
@pytest.mark.parametrize(
    ("machine", "reserved", "said"),
    [
        ("1 core x 1 thread", "", ONE_CPU),
        ("1 core x 2 threads", "0", ONE_CORE.format(2)),
        ("1 core x 8 threads", "0", ONE_CORE.format(8)),
        ("2 cores x 1 thread", "0", ""),
        ("2 cores x 2 threads", "0,2", ""),
    ],
)
def test_s14_the_default_reservation_leaves_cpus_to_the_pods(
    machine: str, reserved: str, said: str, kept: NodeAllocatable | None
) -> None:
    """One core; one CPU of it where that is all; none on a machine of one CPU: with a Node and without."""
    found = setup(machine, kept)
    assert str(found.node.reserved) == reserved
    assert [text for text in found.remarks if said and said in text] == list(found.remarks)
    assert bool(found.remarks) is bool(said)
    told = list(sentences(found.settings, found.node, kept or NodeAllocatable()))
    assert [text.partition(":")[0] for text in told] == ([f"reserved CPUs {reserved}"] if reserved else [])


@pytest.mark.parametrize(
    "body", [{}, {"kubeReserved": {"cpu": "60m"}}, {"reservedSystemCPUs": "0"}, {"systemReserved": {"cpu": 1}}]
)
def test_s14_a_machine_of_one_cpu_pins_nothing_whatever_is_reserved(body: dict[str, Any]) -> None:
    """A reservation there would leave no CPU to the pods: they share it, and policies refuse none for that."""
    found = setup("1 core x 1 thread", topologyManagerPolicy="single-numa-node", **body)
    assert not found.node.rules.cpu.static
    assert found.remarks == (ONE_CPU,)


def test_s14_a_kubelet_that_keeps_all_cpus_leaves_one_to_grant() -> None:
    """Shared-core clouds keep 1060m of 2 CPUs: rounded up that is all, and the agent starts all the same."""
    kept = NodeAllocatable(1060, 1 << 30, known=True)
    found = setup("1 core x 2 threads", kept)
    assert str(found.node.reserved) == "0"
    assert found.remarks[0].startswith("the kubelet keeps 1060m CPU from pods, which is all of this machine's 2 CPUs")
    assert "rounded up" not in next(sentences(found.settings, found.node, kept))


def test_a_reservation_of_all_cpus_that_the_settings_name_is_refused() -> None:
    """What somebody wrote is not changed: the sentence names the key and the remedy."""
    with pytest.raises(SettingsError, match="2 CPUs are reserved, and this machine has 2;"):
        setup("1 core x 2 threads", kubeReserved={"cpu": 1}, systemReserved={"cpu": 1})


@pytest.mark.parametrize("answers", ["kubelet", "kubelet-1.34", "kubelet-1.37"])
@pytest.mark.parametrize("machine", ["1 core x 1 thread", "1 core x 2 threads", "2 cores x 1 thread"])
def test_the_kubelets_answers_know_no_default_reservation(machine: str, answers: str) -> None:
    """Its static policy starts with none; with one CPU reserved of one it starts, and grants none."""
    with pytest.raises(SettingsError, match="unable to determine reserved CPU resources for static policy"):
        setup(machine, compatibility=answers)
    found = setup(machine, compatibility=answers, kubeReserved={"cpu": 1})
    assert (str(found.node.reserved), found.node.rules.cpu.static, found.remarks) == ("0", True, ())


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """A folder with a pod that asks for one CPU of its own."""
    folder = tmp_path / "pods"
    folder.mkdir()
    (folder / "pod.yaml").write_text(POD)
    return folder


def invoke(command: Any, *words: str) -> Result:  # noqa: ANN401 - a click command
    """A command line."""
    return CliRunner().invoke(command, list(words))


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("1 socket x 1 core x 1 thread, 8G per node", ONE_CPU),
        ("1 socket x 1 core x 2 threads, 8G per node", ONE_CORE.format(2)),
    ],
)
def test_each_command_says_it_once(tmp_path: Path, pods: Path, machine: str, said: str) -> None:
    """`run`, `simulate`, `explain`, `plan` and `config check` work on a small machine, and say what is reserved."""
    where = ("--root", f"synthetic:{machine}")
    state = ("--state-dir", str(tmp_path / "state"))
    file = tmp_path / "config.yaml"
    file.write_text("onMisalignment: run\n")
    ran = invoke(run.command, "--pods", str(pods), "--once", *state, *where)
    for result in (
        ran,
        invoke(simulate.command, "--pods", str(pods), *where),
        invoke(explain.command, "solver", *state, *where),
        invoke(explain.command, "--manifest", str(pods), *where),
        invoke(plan.command, "--policy", "restricted", *state, *where),
        invoke(config, "check", str(file), *where),
    ):
        assert result.exit_code == 0, result.output
        assert " ".join(result.output.split()).lower().count(said.lower()) == 1, result.output
        assert "1 CPUs" not in result.output
    told = invoke(plan.command, "--policy", "restricted", "--output", "json", *state, *where)
    assert any(said in note for note in json.loads(told.output)["notes"])


def test_static_memory_needs_nodes_whose_memory_is_known() -> None:
    """Of a machine that tells no memory, the policy is named, not a reservation that could be moved."""
    with pytest.raises(SettingsError, match=r"^memoryManagerPolicy: Static needs to know how much memory"):
        made(
            parse({"memoryManagerPolicy": "Static"})[0],
            parse_synthetic("1 socket x 2 cores x 1 thread, 0G per node"),
        )


@pytest.mark.parametrize(
    ("machine", "limits", "words"),
    [
        (
            "1 socket x 2 cores, 8G per node",
            {"memory": "9Gi"},
            "has 8Gi of memory, less than the 9Gi reserved; reserve less",
        ),
        (
            "2 sockets x 2 cores, 8G per node",
            {"memory": "9Gi"},
            "less than the 9Gi reserved; move a part of it to other nodes",
        ),
    ],
)
def test_a_remedy_names_other_nodes_only_where_there_are_some(
    machine: str, limits: dict[str, str], words: str
) -> None:
    """The sentence fits a machine of one NUMA node, and one without such pages."""
    body = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": limits}]}
    with pytest.raises(SettingsError) as caught:
        made(parse(body)[0], parse_synthetic(machine))
    assert words in str(caught.value)


def test_huge_pages_that_are_not_there_are_missed_in_a_sentence() -> None:
    """Pages may be allocated later: the agent starts, keeps what there is, and says what is missing."""
    limits = {"memory": "100Mi", "hugepages-1Gi": "1Gi"}
    body = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": limits}]}
    found = made(parse(body)[0], parse_synthetic("1 socket x 2 cores, 8G per node"))
    assert found.missed == (
        "reservedMemory: NUMA node 0 has no hugepages-1Gi and shall keep 1Gi; it keeps what it has",
    )
