"""`numalign simulate` as it is typed: what it prints, what programs read, its exit codes, and what is wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.app.simulate import simulate
from agent.cli.simulate import command
from agent.errors import BadInputError, HostError

MACHINE = "synthetic:2 sockets x 4 cores x 2 threads, 8G per node"


def pod(name: str, cpu: str = "2", node: str = "", **annotations: str) -> dict[str, Any]:
    """A Guaranteed pod."""
    notes = {f"numalign.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    limits = {"cpu": cpu, "memory": "256Mi"}
    spec = {"containers": [{"name": "app", "resources": {"limits": limits}}], **({"nodeName": node} if node else {})}
    return {"kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def deployment(name: str, replicas: int, cpu: str = "5", **annotations: str) -> dict[str, Any]:
    """A Deployment of such pods."""
    made = pod(name, cpu, **annotations)
    template = {"metadata": made["metadata"], "spec": made["spec"]}
    return {"kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas, "template": template}}


def call(folder: Path, *arguments: str, pods: list[dict[str, Any]], machine: str = MACHINE) -> Result:
    """Run the command on these objects."""
    file = folder / "pods.json"
    file.write_text(json.dumps({"kind": "List", "items": pods}))
    nodes = ["--root", machine] if machine else []
    return CliRunner().invoke(command, ["--pods", str(file), *nodes, *arguments])


def answer(result: Result) -> list[dict[str, Any]]:
    """The variants of a JSON answer."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    found = json.loads(result.stdout)
    assert found["version"] == 1
    variants: list[dict[str, Any]] = found["variants"]
    return variants


def test_policies_side_by_side(tmp_path: Path) -> None:
    """best-effort spreads what single-numa-node refuses: columns differ by that, and the exit code says so."""
    arguments = ["-o", "json", "--policy", "best-effort,single-numa-node", "--on-misalignment", "fail"]
    result = call(tmp_path, *arguments, pods=[deployment("web", 2), pod("wide", "4")])
    assert result.exit_code == 1
    loose, strict = answer(result)
    assert [loose["label"], strict["label"]] == ["best-effort", "single-numa-node"]
    assert _states(loose) == {"aligned": 2, "not-aligned": 1}
    assert _states(strict) == {"aligned": 2, "refused": 1}
    assert loose["numaNodesSpanned"] == {"1": 2, "2": 1}
    assert strict["numaNodesSpanned"] == {"1": 2}
    assert strict["reasons"] == {"refused": {"TopologyAffinityError": 1}}
    assert loose["resources"]["cpu"] == {"allocatableMilli": 14000, "requestedMilli": 14000, "grantedMilli": 14000}
    assert strict["resources"]["cpu"] == {"allocatableMilli": 14000, "requestedMilli": 10000, "grantedMilli": 10000}
    assert loose["largestAligned"] == {"cpu": {"best": 0, "median": 0, "worst": 0}}
    assert strict["largestAligned"] == {"cpu": {"best": 3, "median": 3, "worst": 3}}
    assert [each["containers"][0]["numaNodes"] for each in loose["placements"]] == ["0", "1", "0-1"]


@pytest.mark.parametrize(("minor", "cpus"), [("1.36", "5-10"), ("1.37", "8-10,12-14")])
def test_a_kubelet_of_another_minor(tmp_path: Path, minor: str, cpus: str) -> None:
    """--kubelet answers as that minor, whatever compatibility says; the answer is named."""
    config = tmp_path / "config.yaml"
    options = {"distribute-cpus-across-numa": "true", "align-by-socket": "true"}
    gates = {"CPUManagerPolicyAlphaOptions": True}
    body = {"topologyManagerPolicy": "none", "cpuManagerPolicyOptions": options, "featureGates": gates}
    config.write_text(json.dumps({**body, "reservedSystemCPUs": "0-1,15"}), "utf-8")
    machine = "synthetic:2 sockets x 2 nodes x 4 cores x 1 thread, 8G per node"
    arguments = ["-o", "json", "--kubelet", minor, "--config", str(config)]
    (found,) = answer(call(tmp_path, *arguments, pods=[pod("a", "1"), pod("b", "6")], machine=machine))
    assert (found["answers"], found["placements"][1]["containers"][0]["cpus"]) == (f"kubelet-{minor}", cpus)


def test_each_variant_names_its_configuration(tmp_path: Path) -> None:
    """Of two files of settings, whoever reads the JSON knows which one a figure is of; without any it is null."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"topologyManagerPolicy: {'restricted' if name == 'a' else 'none'}\n")
    files = [str(tmp_path / f"{name}.yaml") for name in ("a", "b")]
    both = answer(call(tmp_path, "-o", "json", "--config", files[0], "--config", files[1], pods=[pod("p")]))
    assert [(each["config"], each["policy"]) for each in both] == [(files[0], "restricted"), (files[1], "none")]
    (plain,) = answer(call(tmp_path, "-o", "json", pods=[pod("p")]))
    assert plain["config"] is None


def test_an_unknown_minor_is_wrong_input(tmp_path: Path) -> None:
    """--kubelet names the minors that there are."""
    result = call(tmp_path, "--kubelet", "1.99", pods=[pod("p")])
    assert result.exit_code == 2
    assert "1.34" in result.stderr
    assert "1.37" in result.stderr


def _states(variant: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in variant["states"].items() if count}


def test_a_refused_replica_is_made_again_elsewhere(tmp_path: Path) -> None:
    """With --retries a workload's pod goes to the next node; a bare pod stays refused."""
    scene = [pod("a", "4"), pod("b", "4"), deployment("web", 1, "6", policy="single-numa-node")]
    arguments = ["-o", "json", "--on-misalignment", "fail", "--node", "synthetic:1 socket x 8 cores x 2 threads"]
    (once,) = answer(call(tmp_path, *arguments, pods=scene))
    assert once["placements"][2]["tries"] == 1
    wide = [*arguments, "--scheduler", "most-allocated", "--retries", "3"]
    result = call(tmp_path, *wide, pods=scene)
    (again,) = answer(result)
    assert again["placements"][2]["state"] == "aligned"
    assert again["placements"][2]["tries"] == 2
    assert again["madeAgain"] == 1
    assert result.exit_code == 0


def test_a_second_replica_goes_past_the_node_that_refused_the_first(tmp_path: Path) -> None:
    """Its refusal is known and not asked for anew; sent there again and again, the pod would seem to fit nowhere."""
    scene = [pod("a", "4"), pod("b", "4"), deployment("web", 2, "6", policy="single-numa-node")]
    node = "synthetic:1 socket x 8 cores x 2 threads"
    arguments = ["-o", "json", "--on-misalignment", "fail", "--node", node, "--scheduler", "most-allocated"]
    (found,) = answer(call(tmp_path, *arguments, "--retries", "1", pods=scene))
    replicas = found["placements"][2:]
    assert [(each["state"], each["tries"]) for each in replicas] == [("aligned", 2)] * 2


def test_waiting_pods_and_a_scenario(tmp_path: Path) -> None:
    """A pod that waits enters when another ends; one that waits too long is refused; unschedulable ones come in."""
    (tmp_path / "more.yaml").write_text(json.dumps(pod("late", "2")))
    (tmp_path / "scenario.yaml").write_text("events:\n- end: default/first-*\n- add: more.yaml\n- pass: 10\n")
    scene = [deployment("first", 2), pod("waits", "6", policy="single-numa-node"), pod("big", "14")]
    arguments = ["-o", "json", "--on-misalignment", "wait"]
    (before,) = answer(call(tmp_path, *arguments, pods=scene))
    assert [each["state"] for each in before["placements"]][2:] == ["unschedulable", "unschedulable"]
    (after,) = answer(call(tmp_path, *arguments, "--scenario", str(tmp_path / "scenario.yaml"), pods=scene))
    states = {each["pod"]: each["state"] for each in after["placements"]}
    assert states == {
        "default/first-0": "ended", "default/first-1": "ended", "default/waits": "aligned",
        "default/big": "unschedulable", "default/late": "aligned",
    }  # fmt: skip


def test_pods_keep_their_nodes(tmp_path: Path) -> None:
    """--keep-nodes makes a machine per node name from one --root, or wants each to be named."""
    scene = [pod("a", node="n1"), pod("b", node="n2"), pod("c", node="n2")]
    (found,) = answer(call(tmp_path, "-o", "json", "--keep-nodes", pods=scene))
    assert [each["node"] for each in found["placements"]] == ["n1", "n2", "n2"]
    result = call(
        tmp_path, "--keep-nodes", "--node", f"n1={MACHINE}", "--node", f"n3={MACHINE}", pods=scene, machine=""
    )
    assert result.exit_code == 2
    assert "node n2, which is not simulated; add --node n2=MACHINE" in result.output


def test_who_asks_for_a_device_by_a_limit_gets_one(tmp_path: Path) -> None:
    """Who was placed for his limits was counted: no Node has to advertise the resource, no namespace be named."""
    (tmp_path / "config.yaml").write_text("devices: [{resource: numalign.io/nic, class: '02'}]\n")
    asks = [pod(name) for name in ("a", "b", "c")]
    for each in asks:
        each["spec"]["containers"][0]["resources"]["limits"]["numalign.io/nic"] = "1"
    arguments = ["-o", "json", "--config", str(tmp_path / "config.yaml"), "--on-misalignment", "fail"]
    result = call(tmp_path, *arguments, pods=asks, machine=f"{MACHINE}, nic on 0, nic on 1")
    (found,) = answer(result)
    assert (found["resources"]["numalign.io/nic"]["granted"], found["lacking"]) == (2, {"numalign.io/nic": 1})
    assert not found["notes"]


def test_a_daemon_set_has_a_pod_on_every_node(tmp_path: Path) -> None:
    """Also where the scheduler would spread others; it is named after its node."""
    daemon = {**deployment("agent", 1, "1"), "kind": "DaemonSet"}
    (found,) = answer(call(tmp_path, "-o", "json", "--machines", "3", pods=[daemon]))
    assert [each["node"] for each in found["placements"]] == ["synthetic-1", "synthetic-2", "synthetic-3"]
    assert found["placements"][0]["pod"] == "default/agent-synthetic-1"


def test_the_table_names_what_counts(tmp_path: Path) -> None:
    """All pods in: exit code 0, no colours where there is no terminal, and what was left out is told."""
    odd = pod("odd", policy="nonsense")
    odd["spec"]["containers"][0]["resources"]["limits"] |= {"example.com/fpga": "1", "hugepages-2Mi": "64Mi"}
    huge = f"{MACHINE}, 64 2Mi pages"
    result = call(tmp_path, "--show-nodes", "--show-pods", pods=[odd, {"kind": "Service"}], machine=huge)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    for text in (
        "1 pod on 1 node: 2 sockets x 4 cores x 2 threads, 8G per node", "largest aligned: CPUs",
        "hugepages-2Mi requested, of 256Mi",
        "note: 1 Service left out: it makes no pods", "note: default/odd: 1 example.com/fpga was not looked at: ",
        'numalign.io/policy: "nonsense" is not one of none,', "default/odd",
    ):  # fmt: skip
        assert text in result.output


def test_the_table_says_of_which_resource_there_is_too_little(tmp_path: Path) -> None:
    """One pod that fits nowhere is enough: who reads the table sees what is missing."""
    found = call(tmp_path, pods=[pod("huge", "40"), pod("one")]).output
    (row,) = (line.split() for line in found.splitlines() if "too little" in line)
    assert row == ["too", "little", "cpu", "yes"]


def test_the_table_says_under_which_policy_there_is_too_little(tmp_path: Path) -> None:
    """What best-effort takes leaves too little for the next pod; single-numa-node refuses it, and has room."""
    asked = ["--policy", "best-effort,single-numa-node", "--on-misalignment", "fail"]
    found = call(tmp_path, *asked, pods=[pod("wide", "10"), pod("next", "6")]).output
    (row,) = (line.split() for line in found.splitlines() if "too little" in line)
    assert row == ["too", "little", "cpu", "yes", "-"]


def test_in_colours_what_belongs_to_the_figure_above_is_dim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of the middle and of the fullest node stand back behind that of the best, which people look for."""
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = call(tmp_path, "--node", f"2x{MACHINE}", pods=[pod("a")], machine="").stdout.splitlines()
    best, middle, fullest = lines[-4:-1]
    assert (best.split()[-1], middle.split()[-1], fullest.split()[-1]) == ("8", "\x1b[2m8\x1b[0m", "\x1b[2m8\x1b[0m")


def test_one_node_as_a_picture(tmp_path: Path) -> None:
    """--draw writes the drawing that `topology` makes, with the pods on it."""
    target = tmp_path / "node.svg"
    result = call(tmp_path, "--draw", "synthetic", "-f", str(target), pods=[pod("p")])
    assert result.exit_code == 0, result.output
    assert target.read_text().startswith("<svg")
    assert "default/p" in target.read_text()
    assert call(tmp_path, "--draw", "other", pods=[pod("p")]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--policy", "best"], '"best" is not one of none, best-effort'),
        (["--node", "0xtwo-sockets"], "write 1 or more"),
        (["--node", "nowhere-at-all"], "machine nowhere-at-all: no such folder or archive"),
        (["--node", "synthetic:7 moons"], "is no part of a machine's description"),
        (["--node", f"a={MACHINE}", "--node", f"a={MACHINE}"], "two nodes are named a"),
        (["--scenario", "/none.yaml"], "/none.yaml: cannot be read"),
        (["--draw", "synthetic", "--policy", "none,restricted"], "shows one variant"),
    ],
)
def test_wrong_input_is_told_and_ends_with_2(tmp_path: Path, arguments: list[str], text: str) -> None:
    """One sentence that names the part."""
    result = call(tmp_path, *arguments, pods=[pod("p")])
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ("events: 3", "events: must be a list"),
        ("then: []", "then: is no key of a scenario"),
        ("events:\n- end: default/nobody", "events[0].end: 'default/nobody' names none of the pods"),
        ("events:\n- pass: 86400\n- pass: 1000000001", "events[1].pass: must be seconds from 0 to 1000000000"),
        ("events:\n- pass: soon", "events[0].pass: must be seconds"),
        ("events:\n- go: 1", "events[0]: must be one of add, end, pass"),
        ("events:\n- add: none.yaml", "none.yaml: cannot be read"),
        ("[", "is not YAML"),
    ],
)
def test_a_wrong_scenario_names_the_place(tmp_path: Path, scenario: str, text: str) -> None:
    """With the path of the field, exit code 2."""
    (tmp_path / "s.yaml").write_text(scenario)
    result = call(tmp_path, "--scenario", str(tmp_path / "s.yaml"), pods=[pod("p")])
    assert result.exit_code == 2
    assert text in result.output


def test_a_narrow_terminal_gets_several_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is cut or folded: variants that do not fit beside each other come below."""
    monkeypatch.setenv("COLUMNS", "80")
    scopes = ["--policy", "none,best-effort,restricted,single-numa-node", "--scope", "container,pod"]
    lines = call(tmp_path, *scopes, "--show-nodes", "--show-pods", pods=[deployment("web", 3)]).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    rows = [line.split() for line in lines if line.startswith("pods ") and line.split()[1].isdigit()]
    assert len(rows) > 1
    assert sum(len(row) - 1 for row in rows) == 8
    words = [word for line in lines for word in line.split()]
    assert words.count("best-effort") >= 2


def test_a_file_of_lstopo_is_a_machine_too(tmp_path: Path) -> None:
    """Written by lstopo itself; the node is named after the file."""
    file = Path(__file__).parents[1] / "replay" / "lstopo" / "nodes-in-packages.v2.xml"
    (found,) = answer(call(tmp_path, "-o", "json", pods=[pod("p")], machine=str(file)))
    assert found["nodes"][0]["name"] == "nodes-in-packages-v2"
    assert [each["id"] for each in found["nodes"][0]["numaNodes"]] == [0, 1, 2, 3]


def test_a_state_that_no_pod_of_a_variant_has_counts_none(tmp_path: Path) -> None:
    """Beside a policy that refuses, the column of the one that does not says 0."""
    arguments = ["--policy", "best-effort,single-numa-node", "--on-misalignment", "fail"]
    result = call(tmp_path, *arguments, pods=[deployment("web", 2), pod("wide", "4")])
    (refused,) = [line.split() for line in result.output.splitlines() if line.strip().startswith("refused")]
    assert refused[-2:] == ["0", "1"]


def test_this_machine_that_cannot_be_read_is_no_wrong_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody named a machine: the fault is the host's, and no name of a machine is made up for it."""

    def broken(_spec: str | None) -> None:
        raise HostError("/sys", "cannot be read")

    monkeypatch.setattr(simulate, "open_machine", broken)
    with pytest.raises(HostError, match="/sys"):
        simulate._open(None)
    with pytest.raises(BadInputError, match="machine elsewhere"):
        simulate._open("elsewhere")
