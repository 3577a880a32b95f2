"""`numalign fleet` as people type it: tables in a narrow terminal, JSON, the picture, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import group
from tests.unit.test_fleet import served
from tests.world.fleets import node, pod, summary_of, topology

UNBOUND = "0/3 nodes are available: 3 Insufficient cpu."


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """What kubectl would print of a fleet: full, half full, and one that publishes nothing."""
    waits = pod("open-with-a-rather-long-name", cpu="4")
    waits["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": UNBOUND}]
    items: list[Any] = [
        topology("full.eu-central-1.compute.internal", summary_of(served(3, 4, 2))),
        topology("half.eu-central-1.compute.internal", summary_of(served(3))), topology("old", ""),
        node("full.eu-central-1.compute.internal"), node("half.eu-central-1.compute.internal"), node("old"), waits,
        pod("odd", cpu="many"), {"kind": "Namespace", "metadata": {"name": "shop"}},
    ]  # fmt: skip
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    return file


def typed(*words: str, columns: int = 120) -> Result:
    """Run the command."""
    return CliRunner().invoke(group, ["fleet", *words], env={"COLUMNS": str(columns)})


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_tables_hold(listed: Path, columns: int) -> None:
    """No line is wider than the terminal; what matters is there at each width; exit code 1 says that pods wait."""
    done = typed("--from", str(listed), columns=columns)
    assert done.exit_code == 1, done.output
    assert max(map(len, done.output.splitlines())) <= columns
    text = " ".join(done.output.split())
    for words in (
        "3 nodes, 2 with a summary that can be decided by", "single-numa-node", "1 socket,", UNBOUND,
        "largest aligned request under single-numa-node now: 4 CPUs, on half.eu-central-1.compute.internal",
        "half.eu-central-1.compute.internal would take it aligned now",
        "no usable summary (missing) on 1 node: old; its agent does not publish one (fleet.publish)",
        "shop/odd", "shop/open-with-a-rather-long-name", "advice: not asked",
    ):  # fmt: skip
        assert words in text, done.output


def test_json_and_picture(listed: Path, tmp_path: Path) -> None:
    """The documented shape; the picture has every node with its figures as a tip."""
    done = typed("--from", str(listed), "-o", "json", "--svg", str(tmp_path / "f.svg"))
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert (found["version"], [each["name"][:4] for each in found["nodes"]]) == (1, ["full", "half", "old"])
    old = found["nodes"][2]
    assert (old.keys(), old["lack"]) == ({"name", "lack", "why"}, "missing"), "figures that nobody knows are none"
    assert [(each["largestCpus"], each["cpus"]) for each in found["nodes"][:2]] == [(0, 7), (4, 7)]
    assert {each["state"] for each in found["pods"]} == {"unbound", "waits"}
    assert found["largest"] == [
        {"policy": "single-numa-node", "nodes": 2, "cpus": 4, "node": "half.eu-central-1.compute.internal",
         "exact": True},
    ]  # fmt: skip
    picture = (tmp_path / "f.svg").read_text()
    assert picture.count("<g><title>") == 3 + 5  # and the legend's
    assert "old: missing: its agent does not publish one" in picture


def test_a_crowd_that_waits_is_cut_off_and_counted(tmp_path: Path) -> None:
    """Each asks for another amount, so that each has a row: fifty of them, and how many are not shown."""
    waiting = [pod(f"p{number}", cpu=f"{8000 + number}m") for number in range(53)]
    for each in waiting:
        each["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": UNBOUND}]
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"items": [topology("n", summary_of(served(2))), node("n"), *waiting]}))
    done = typed("--from", str(file))
    assert done.output.count("shop/p") == 50, done.output
    assert "and 3 pods more: --output json has all" in done.output


def test_refused_pods_are_counted_and_end_with_1(tmp_path: Path) -> None:
    """A fleet view is opened for them: a line with their names, a row with the reason, and exit code 1."""
    no = ("TopologyAffinityError", "it asks for 5 CPUs, and 3 are free", "2023-11-14T22:14:00Z")
    refused = [pod(name, "n", cpu="5", phase="Running", aligned=no) for name in ("a", "b")]
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"items": [topology("n", summary_of(served(2))), node("n"), *refused]}))
    done = typed("--from", str(file))
    assert done.exit_code == 1
    assert "2 pods are refused: shop/a, shop/b" in done.output
    assert "it asks for 5 CPUs, and 3 are free" in done.output
    found = json.loads(typed("--from", str(file), "-o", "json").output)
    assert [(each["pod"], each["state"]) for each in found["pods"]] == [("shop/a", "refused"), ("shop/b", "refused")]


def test_nobody_waits(tmp_path: Path) -> None:
    """Exit code 0, and a sentence."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"items": [topology("n", summary_of(served(2))), node("n")]}))
    done = typed("--from", str(file))
    assert done.exit_code == 0
    assert "no pod waits for room or lies misaligned" in done.output


@pytest.mark.parametrize(
    ("seconds", "age"), [(30, r"\d\ds"), (150, "2m"), (3 * 3600 + 60, "3h"), (86_400 + 7200, "1d"), (-600, "0s")]
)
def test_how_long_a_pod_waits_is_told_in_one_unit(tmp_path: Path, seconds: int, age: str) -> None:
    """By the largest unit that is whole; without it nobody sees which of two pods waits for a minute or for days."""
    waits = pod("open", cpu="4")
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))
    waits["metadata"]["creationTimestamp"] = created
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({"items": [topology("n", summary_of(served(3, 4, 2))), node("n"), waits]}))
    text = " ".join(typed("--from", str(file)).output.split())
    assert re.search(rf"shop/open not bound - {age} 4 ", text.replace("\u00a0", " ")), text


def test_a_picture_that_cannot_be_written_is_told(listed: Path, tmp_path: Path) -> None:
    """The file and the option."""
    done = typed("--from", str(listed), "--svg", str(tmp_path / "none" / "f.svg"))
    assert done.exit_code == 2
    assert "--svg" in done.output


PLUGIN = Path(__file__).parents[2] / "deploy/kubectl-numalign"


@pytest.mark.parametrize(
    ("words", "path", "code", "told"),
    [
        (["--kubeconfig", "nowhere"], str(Path(sys.executable).parent), 2, "--kubeconfig: no cluster can be asked"),
        ([], "/nowhere", 1, "fleet needs the program numalign on your PATH"),
        (["--as", "jane"], "/nowhere", 1, "fleet takes --context and --kubeconfig, not --as"),
    ],
)
def test_the_plugin_runs_the_program(words: list[str], path: str, code: int, told: str) -> None:
    """The plugin's fleet is numalign fleet with kubectl's options and its exit code; what it cannot pass is said."""
    command = [sys.executable, str(PLUGIN), "fleet", *words]
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_the_gate_is_told_in_text_json_and_picture(tmp_path: Path) -> None:
    """How many wait there and for how long, and which pod landed elsewhere."""
    held, landed = pod("held", cpu="4", schedulingGates=[{"name": "numalign.io/fit"}]), pod("landed", "half")
    for body, status, message in ((held, "False", "half comes closest"), (landed, "True", "full: it takes the pod")):
        told = {"type": "numalign.io/fit", "status": status, "message": message,
                "lastTransitionTime": "2023-11-14T22:20:00Z"}  # fmt: skip
        body["status"]["conditions"].append(told)
    items = [topology("full", summary_of(served(3, 4))), topology("half", summary_of(served(3))), node("full"),
             node("half"), held, landed]  # fmt: skip
    file, picture = tmp_path / "fleet.json", tmp_path / "fleet.svg"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    done = typed("--from", str(file), "--svg", str(picture))
    text = " ".join(done.output.split())
    assert re.search(r"1 pod waits at the gate, the longest for \d+d: shop/held", text), done.output
    assert "released to one node and bound to another: shop/landed (full: bound to half)" in text
    assert "half comes closest" in text
    assert "1 of them at the gate" in picture.read_text()
    found = json.loads(typed("--from", str(file), "-o", "json").stdout)
    assert {each["pod"]: each["state"] for each in found["pods"]}["shop/held"] == "gated"
