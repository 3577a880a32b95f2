"""`numalign topology`: the tree, JSON and the picture from the command line, good input and bad."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from agent.cli import group
from agent.cli.topology import command
from agent.core.machines.synthetic import parse_synthetic
from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Confinement, Ledger
from agent.model.machine import Machine
from agent.observe.tree import tree
from tests.unit.drawing_cases import DESCRIPTIONS, GIB, grants, two_sockets

ROOT = f"synthetic:{DESCRIPTIONS[1]}"


def run(*arguments: str) -> Result:
    """The command as a user's shell would call it."""
    return CliRunner().invoke(command, list(arguments))


def shown(machine: Machine, ledger: Ledger | None = None, *, full: bool = False, width: int = 200) -> str:
    """The tree as plain text."""
    console = Console(file=io.StringIO(), width=width, markup=False)
    for part in tree(machine, ledger, full=full):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def coloured(machine: Machine, ledger: Ledger | None = None) -> str:
    """The tree as a terminal gets it."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="truecolor", markup=False)
    for part in tree(machine, ledger):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tree_shows_every_part_where_it_hangs() -> None:
    """Nodes under sockets, caches and devices under nodes, siblings, huge pages, distances."""
    result = run("--root", ROOT)
    assert result.exit_code == 0
    lines = [line.strip(" │├└─") for line in result.output.splitlines()]
    at = {line.split("  ")[0]: number for number, line in enumerate(lines)}
    assert (
        at["socket 0"]
        < at["NUMA node 0"]
        < at["NIC 03:00.0"]
        < at["NUMA node 1"]
        < at["GPU 01:00.0"]
        < at["socket 1"]
    )
    assert "L3  8 cores × 2 threads: CPUs 0-7 with siblings 32-39" in lines
    assert "4 NIC VFs of 03:00.0" in lines
    assert any("huge pages 1024 × 2Mi, 4 × 1Gi" in line for line in lines)
    assert "2  21  21  10  12" in lines


def test_what_the_kernel_keeps_apart_is_told() -> None:
    """Memory that is movable only, offline CPUs, and CPUs that a cgroup hid from lstopo."""
    machine = two_sockets()
    nodes = (*machine.nodes[:-1], replace(machine.nodes[-1], movable=True))
    text = shown(replace(machine, nodes=nodes, offline=CpuSet.of(200), disallowed=CpuSet.of(201, 202)))
    assert text.count("movable only") == 1
    assert "offline: CPU 200" in text
    assert "not allowed to lstopo: CPUs 201-202" in text


def test_each_distance_stands_below_the_number_of_its_node() -> None:
    """The matrix reads by column: the first column is for the rows' own numbers."""
    lines = shown(two_sockets()).splitlines()
    heads, first, *_ = lines[next(at for at, line in enumerate(lines) if line.startswith("distances")) + 1 :]
    ends = [[word.end() for word in re.finditer(r"\d+", line)] for line in (heads, first)]
    assert heads.split() == ["0", "1", "2", "3"]
    assert first.split() == ["0", "10", "12", "21", "21"]
    assert ends[0] == ends[1][1:]


def test_piped_output_has_no_colours_and_no_wrapped_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What grep and less get is plain text, one fact per line, however long."""
    monkeypatch.delenv("COLUMNS", raising=False)  # workers of pytest-xdist have it
    result = run(
        "--root", "synthetic:1 socket x 4096 cores, efficiency 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35"
    )
    assert "\x1b" not in result.output
    assert "18 efficiency cores: CPUs 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35\n" in result.output


def test_a_terminal_gets_colours_and_heat() -> None:
    """The nearest and the farthest distance have the ends of the scale; a pod's letter has its colour."""
    machine = two_sockets()
    text = coloured(machine, grants(machine))
    assert "48;2;219;233;244m  10\x1b" in text
    assert "48;2;0;114;178m  21\x1b" in text
    assert "48;2;230;159;0m A " in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_narrow_terminals_wrap_and_lose_nothing(width: int) -> None:
    """No line is wider than the terminal, and every node is still told."""
    text = shown(two_sockets(), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f"NUMA node {node}" in text for node in range(4))


def test_holders_are_shown_at_their_nodes() -> None:
    """Each node tells who holds what of it; a list at the end tells each pod's whole."""
    machine = two_sockets()
    lines = [line.strip(" │├└─") for line in shown(machine, grants(machine)).splitlines()]
    assert "A  telco/upf-0: CPUs 1-3,33-35, 20Gi" in lines
    assert "B  ml/train-7d9f: CPUs 8-11,40-43, 1Gi hugepages-2Mi, 10Gi" in " ".join(lines).replace(
        "10Gi, 1Gi hugepages-2Mi", "1Gi hugepages-2Mi, 10Gi"
    )
    assert "F  web/cache-0: shared CPUs, 2Gi" in lines
    assert "reserved: CPUs 0,32" in lines
    assert any(line.startswith("GPU 01:00.0") and line.endswith("B") for line in lines)
    assert any(line.endswith("not aligned as its policy wants") for line in lines)


def test_a_node_that_gives_a_pod_no_memory_is_not_said_to() -> None:
    """Kept on two nodes, with room for all of its memory on the first: of the second it has CPUs."""
    machine = two_sockets()
    ledger = grants(machine)
    both = Confinement(NodeSet.of(2, 3), ((2, 1500), (3, 0)), memory=True, limit=((2, 2 * GIB), (3, 0)))
    ledger = replace(ledger, cpus=replace(ledger.cpus, confined={"u6": both}))
    lines = [line.strip(" │├└─") for line in shown(machine, ledger).splitlines()]
    assert "F  web/cache-0: shared CPUs, 2Gi" in lines
    assert "F  web/cache-0: shared CPUs" in lines


def test_large_machines_take_few_lines() -> None:
    """64 nodes with 256 CPUs fit on a screen; --full shows all of them and the whole matrix."""
    machine = parse_synthetic("16 sockets x 4 nodes x 2 cores x 2 threads, isolated 9")
    text = shown(machine)
    assert len(text.splitlines()) < 40
    assert "sockets 3-15, same as socket 2" in text
    assert "isolated: CPU 9" in text
    assert "--full shows the matrix" in text
    full = shown(machine, full=True, width=400)
    assert full.count("NUMA node ") == 64
    assert full.count("core  CPUs ") == 128
    assert len(full.splitlines()[-1].split()) == 65


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_every_cpu_device_and_node_is_in_the_full_tree(text: str) -> None:
    """Nothing is lost between the machine and the tree."""
    machine = parse_synthetic(text)
    full = shown(machine, full=True)
    assert full.count("NUMA node ") == len(machine.nodes)
    assert full.count("core  CPU") == len(machine.cores)
    assert all(device.address.removeprefix("0000:") in full for device in machine.devices)


def test_json_has_the_recorded_keys_and_the_holders() -> None:
    """The keys that recorded machines have; with a ledger also who holds what."""
    facts = json.loads(run("--root", ROOT, "-o", "json").output)
    assert {"cpus", "cores", "packages", "l3", "numa", "distances", "pci"} <= set(facts)
    assert facts["numa"][1] | {"node": 1, "cpus": [*range(8, 16), *range(40, 48)]} == facts["numa"][1]
    assert "holders" not in facts


def test_a_saved_ledger_is_shown(tmp_path: Path) -> None:
    """The checkpoint of the agent, in all three outputs."""
    place = tmp_path / "checkpoint.json"
    Checkpoint(place, boot="b").save(grants(two_sockets()))
    common = ("--root", ROOT, "--ledger", str(place))
    assert "telco/upf-0: CPUs 1-3,33-35, 20Gi" in run(*common).output
    assert "ml/train-7d9f" in run(*common, "-o", "svg").output
    facts = json.loads(run(*common, "-o", "json").output)
    assert facts["holders"][0] == {
        "pod": "telco/upf-0", "uid": "u1", "cpus": [1, 2, 3, 33, 34, 35], "confined_to": [],
        "memory_bytes": {"0": {"memory": 20 << 30}}, "over_nodes": [], "devices": ["0000:03:00.1"], "aligned": True,
    }  # fmt: skip


def test_a_ledger_of_another_machine_is_told(tmp_path: Path) -> None:
    """It is shown as far as it goes, with a warning on standard error."""
    place = tmp_path / "checkpoint.json"
    Checkpoint(place, boot="b").save(grants(two_sockets()))
    result = run("--root", "synthetic:1 socket x 4 cores", "--ledger", str(place))
    assert result.exit_code == 0
    assert "is of machine" in result.stderr
    assert "is of machine" not in result.stdout


def test_a_file_is_written_instead(tmp_path: Path) -> None:
    """--file writes the picture, and nothing else is printed."""
    place = tmp_path / "machine.svg"
    result = run("--root", ROOT, "-o", "svg", "--file", str(place))
    assert (result.exit_code, result.output) == (0, "")
    assert ET.parse(place).getroot().tag.endswith("svg")  # noqa: S314 - because the picture is our own


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--root", "/no/such/folder"), "/no/such/folder"),
        (("--root", "synthetic:2 sokets"), "2 sokets"),
        (("--root", ROOT, "--ledger", "/no/such/file"), "no such file"),
        (("--root", ROOT, "--ledger", __file__), "is no ledger of numalign"),
        (("--root", ROOT, "--file", "/no/such/folder/out"), "cannot be written"),
        (("--root", ROOT, "--output", "png"), "png"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], told: str) -> None:
    """What is wrong is named, without a traceback."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_help_teaches_by_examples() -> None:
    """--help shows commands that work as they stand."""
    text = CliRunner().invoke(group, ["topology", "--help"]).output
    assert "numalign topology --root 'synthetic:2 sockets x 2 nodes x 8 cores, gpu on 1'" in text
    assert "Exit code" in text


def test_only_memory_without_cpus_is_told_to_be_near_somebody() -> None:
    """A node with CPUs is its own initiator: to say that it is nearest to itself would be noise."""
    text = shown(parse_synthetic("2 sockets x 2 cores, 4G per node, memory node 8G far near 0"))
    assert text.count("nearest to node") == 1
    assert "nearest to node 0" in text.split("NUMA node 2")[1]
