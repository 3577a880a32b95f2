"""`numalign run` as a newcomer meets it: a small machine, a second run, typing errors, and where things are kept."""

from __future__ import annotations

import json
import logging
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import group
from agent.errors import CheckpointError, SettingsError
from tests.flow.serving import serving, write
from tests.flow.world import container, manifest

EXAMPLES = Path(__file__).parents[2] / "deploy/examples"
SMALL = "synthetic:1 socket x 2 cores, 16G per node"
MACHINE = "synthetic:2 sockets x 8 cores, 16G per node"


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """A folder with a pod of two CPUs."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2", memory="64Mi"))
    return tmp_path / "pods"


def run(pods: Path, *more: str, state: bool = True, machine: str = MACHINE) -> Result:
    """`run --once` on this folder, its table 160 columns wide."""
    kept = ["--state-dir", str(pods.parent / "state")] if state else []
    return CliRunner().invoke(
        group, ["run", "--once", "--pods", str(pods), "--root", machine, *kept, *more], env={"COLUMNS": "160"}
    )


def test_a_folder_that_is_not_there_is_told_with_its_option(pods: Path) -> None:
    """Of several paths on one line, whoever reads it changes the right one."""
    found = run(pods.parent / "nowhere").exception
    assert isinstance(found, SettingsError)
    assert str(found).startswith(f"--pods: {pods.parent / 'nowhere'} is not there")


def next_of(result: Result) -> list[str]:
    """The words of the command that a run ends with."""
    said = result.output.splitlines()[-1]
    assert said.startswith("next: numalign explain "), said
    return shlex.split(said.removeprefix("next: numalign "))


def test_a_run_ends_with_a_command_that_works(pods: Path) -> None:
    """It explains the pod that does not fit, else the first, on the run's machine, and is quoted for a shell."""
    config = pods.parent / "a config.yaml"
    config.write_text("topologyManagerPolicy: restricted\n")
    words = next_of(run(pods, "--config", str(config)))
    assert words[:2] == ["explain", "db"]
    found = CliRunner().invoke(group, words)
    assert (found.exit_code, "restricted" in found.output) == (0, True)
    write(pods, "wide", container(cpu="64", memory="64Mi"))
    words = next_of(run(pods, "--config", str(config)))
    assert words[:2] == ["explain", "wide"]
    assert CliRunner().invoke(group, words).exit_code == 1


def test_the_command_names_the_namespace_where_two_pods_have_one_name(pods: Path) -> None:
    """A name alone would be asked back."""
    write(pods, "other", {**container(cpu="1", memory="64Mi"), "name": "c"})
    text = (pods / "other.yaml").read_text("utf-8")
    (pods / "other.yaml").write_text(
        text.replace("name: other", "name: db").replace("namespace: default", "namespace: other")
    )
    words = next_of(run(pods))
    assert words[1] in {"default/db", "other/db"}
    assert CliRunner().invoke(group, words).exit_code == 0


def test_a_result_that_is_not_kept_is_said_to_be_so(pods: Path) -> None:
    """Without --state-dir nothing can be asked afterwards, and the last line says what to add."""
    assert run(pods, state=False).output.splitlines()[-1] == (
        "The result is not kept. Add --state-dir DIR to ask `state` and `explain` about it."
    )


def test_a_state_folder_that_is_not_there_names_the_one_that_make_run_made(
    pods: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `make run` a command without --state-dir looks into the agent's folder: the error names the other one."""
    monkeypatch.chdir(pods.parent)
    monkeypatch.setattr("agent.app.places.DEFAULT_STATE", pods.parent / "nowhere")
    none = ["state", "--state-dir", str(pods.parent / "nowhere")]
    assert "make run" not in str(CliRunner().invoke(group, none).exception)
    run(pods, "--state-dir", "run/here", state=False)
    assert str(CliRunner().invoke(group, none).exception).endswith("; after `make run` it is --state-dir run/here")


def held(result: Result) -> dict[str, Any]:
    """Pod -> its CPUs, of a JSON answer."""
    return {each["pod"]: each["cpus"] for each in json.loads(result.stdout)["containers"]}


def test_a_small_machine_is_said_to_be_one(tmp_path: Path) -> None:
    """The examples on two CPUs: sentences of our own, none of the kubelet's, and where to see more."""
    done = run(EXAMPLES / "pods", "--state-dir", str(tmp_path), state=False, machine=SMALL)
    assert done.exit_code == 1
    assert "it asks for 12 CPUs, and none is free on this node" in done.output
    assert "which is unexpected" not in done.output
    assert "Error" not in done.output
    assert "2 CPUs in 1 socket, 1 NUMA node" in done.output
    assert re.search(r"^\d of 9 pods are not placed as asked: .*MACHINE=two-sockets$", done.output, re.MULTILINE)


def test_a_node_that_is_not_online_is_counted_as_topology_counts_it(tmp_path: Path) -> None:
    """Both commands say how many NUMA nodes the kernel has online."""
    machine = str(Path(__file__).parents[1] / "replay" / "odd" / "offline-node.tar.xz")
    (tmp_path / "pods").mkdir()
    assert "2 sockets, 1 NUMA node, " in run(tmp_path / "pods", machine=machine).output
    assert "2 sockets, 1 NUMA node, " in CliRunner().invoke(group, ["topology", "--root", machine]).output


def test_a_machine_with_room_gets_no_advice(tmp_path: Path) -> None:
    """Where most of the examples fit nothing is said of other machines."""
    done = run(EXAMPLES / "pods", "--state-dir", str(tmp_path), state=False, machine="two-sockets")
    assert "not placed as asked" not in done.output


def test_kept_is_said_of_those_alone_that_kept_it(pods: Path) -> None:
    """A second run keeps, and says so; a manifest that changed is another pod, and not among them."""
    assert "earlier run" not in run(pods).output
    assert "1 pod has what an earlier run gave, whatever the settings are now" in run(pods).output
    write(pods, "db", container(cpu="4", memory="64Mi"))
    assert "earlier run" not in run(pods).output


def test_afresh_forgets_what_an_earlier_run_gave(pods: Path) -> None:
    """Other settings show at once: the pods are placed anew, and nobody is said to have kept anything."""
    config = pods.parent / "config.yaml"
    config.write_text('{reservedSystemCPUs: "0-3"}')
    assert held(run(pods, "--output", "json")) == {"default/db": "1-2"}
    kept = run(pods, "--output", "json", "--config", str(config))
    assert held(kept) == {"default/db": "1-2"}
    anew = run(pods, "--output", "json", "--config", str(config), "--afresh")
    assert held(anew) == {"default/db": "4-5"}
    assert "earlier run" not in run(pods, "--config", str(config), "--afresh").output


def test_afresh_takes_the_cgroups_of_before_away(pods: Path) -> None:
    """Whoever stayed is placed as the first one: the CPUs that its cgroup had are no reason to keep them."""
    write(pods, "web", container(cpu="2", memory="64Mi"))
    before = held(run(pods, "--output", "json"))
    second = max(before, key=lambda pod: str(before[pod]))
    (pods / f"{min(before, key=lambda pod: str(before[pod])).removeprefix('default/')}.yaml").unlink()
    assert before[second] == "3-4"
    assert held(run(pods, "--output", "json", "--afresh")) == {second: "1-2"}


def test_afresh_is_for_a_folder_of_manifests() -> None:
    """In a cluster nothing is forgotten by an option: wrong input."""
    done = CliRunner().invoke(group, ["run", "--afresh"])
    assert isinstance(done.exception, SettingsError)


def test_once_needs_no_state_folder(pods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --state-dir nothing is written to /var/lib/numalign, and what was written is removed."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    done = run(pods, state=False)
    assert done.exit_code == 0, done.output
    assert f"ledger: {tmp_path / 'temporary'}" in done.output
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_state_folder_that_cannot_be_made_names_the_option(pods: Path) -> None:
    """The sentence says which option names another folder."""
    done = run(pods, "--state-dir", str(pods / "db.yaml" / "state"), state=False)
    assert isinstance(done.exception, CheckpointError)
    assert "--state-dir" in str(done.exception)


def test_a_mistyped_annotation_is_noted_below_the_table(pods: Path) -> None:
    """A wrong value and an unknown name: `run` says what explain says."""
    write(pods, "typo", container(cpu="1"), policy="strict", polciy="restricted")
    out = run(pods).output
    assert 'note: default/typo: numalign.io/policy: "strict"' in out
    assert "note: default/typo: numalign.io/polciy" in out


def test_a_mistyped_annotation_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A live agent over a folder says it in its log, with the pod."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "typo", container(cpu="1"), policy="strict")
    with caplog.at_level(logging.WARNING), serving(tmp_path):
        pass
    assert any('numalign.io/policy: "strict"' in each.getMessage() for each in caplog.records)


def test_what_is_noted_is_in_the_json_too(pods: Path) -> None:
    """A program that reads `run -o json` sees the typing error, with the pod that has it."""
    write(pods, "typo", container(cpu="1"), policy="strict")
    (note,) = json.loads(run(pods, "--output", "json").stdout)["notes"]
    assert note["pod"] == "default/typo"
    assert note["text"].startswith('numalign.io/policy: "strict" is not one of')


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_of_a_dump_that_has_ended_holds_nothing(pods: Path, phase: str) -> None:
    """Like `simulate`, `run` leaves it out and says so; the pods beside it are served."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}
    body = {"kind": "Pod", "metadata": {"name": "over"}, "spec": spec, "status": {"phase": phase}}
    (pods / "over.json").write_text(json.dumps(body))
    done = run(pods, "--output", "json")
    said = json.loads(done.stdout)
    assert done.exit_code == 0
    assert "default/over" not in held(done)
    assert "default/db" in held(done)
    assert any("1 Pod left out: it has " in note["text"] for note in said["notes"])
    assert "note: 1 Pod left out: it has " in run(pods).output


def test_a_pod_that_one_container_makes_burstable_is_noted(pods: Path) -> None:
    """Whole CPUs that are shared because of another container: run and simulate name both, explain the other one."""
    limits = {"cpu": "2", "memory": "1Gi"}
    body = manifest("cache", {"name": "redis", "resources": {"limits": limits}}, inits=[container("init")])
    body["spec"]["initContainers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    (pods / "cache.yaml").write_text(json.dumps(body))
    why = "the pod is Burstable, since container init has no CPU limit"
    note = f"note: default/cache: container redis asks for whole CPUs and shares them all the same: {why}"
    assert note in run(pods).output
    wide = {"COLUMNS": "200"}
    assert note in CliRunner().invoke(group, ["simulate", "--pods", str(pods), "--root", MACHINE], env=wide).output
    asked = ["explain", "cache", "--root", MACHINE, "--state-dir", str(pods.parent / "state")]
    assert why.removeprefix("the ") in CliRunner().invoke(group, asked, env=wide).output
    body["spec"]["initContainers"][0]["resources"] = {"limits": {"cpu": "100m", "memory": "1Mi"}}
    (pods / "cache.yaml").write_text(json.dumps(body))
    assert "Burstable, since" not in run(pods, "--afresh").output


def test_huge_pages_that_nothing_places_are_noted(pods: Path) -> None:
    """Under the default memory manager they may lie elsewhere: every command says so, with Static none."""
    (pods / "upf.yaml").write_text(
        "{kind: Pod, metadata: {name: upf}, spec: {containers: [{name: upf, resources: {limits: "
        '{cpu: "2", memory: 64Mi, hugepages-1Gi: 2Gi}}}]}}'
    )
    said = "its huge pages (1Gi) may lie on another NUMA node: memoryManagerPolicy is None, which places none"
    machine = "two-sockets"
    assert f"note: default/upf: {said}" in run(pods, machine=machine).output
    common = ["--root", machine, "--state-dir", str(pods.parent / "state")]
    wide = {"COLUMNS": "200"}
    assert said in CliRunner().invoke(group, ["explain", "upf", *common], env=wide).output
    done = CliRunner().invoke(group, ["simulate", "--pods", str(pods), "--root", machine], env=wide)
    assert f"note: default/upf: {said}" in done.output
    (line,) = (
        each
        for each in json.loads(CliRunner().invoke(group, ["plan", "--repack", "-o", "json", *common]).output)["pods"]
        if each["pod"] == "default/upf"
    )
    assert (line["alignedThen"], line["note"]) == (True, said)
    assert said[1:] in CliRunner().invoke(group, ["plan", "--repack", *common], env=wide).output
    static = ["--config", str(EXAMPLES / "config.yaml")]
    assert "may lie on another" not in run(pods, *static, "--afresh", machine=machine).output


def test_a_folder_of_pods_that_is_not_there_is_told_by_its_option(pods: Path) -> None:
    """The sentence begins with the option that is wrong."""
    done = run(pods / "gone")
    assert isinstance(done.exception, SettingsError)
    assert str(done.exception).startswith("--pods")
