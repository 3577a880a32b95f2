"""Wrong input is exit code 2 in every command, and its sentence names the option, the file and the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import COMMANDS, group
from agent.errors import SettingsError

MACHINE = "synthetic:2 sockets x 4 cores, 8G per node"


def called(*words: str, folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command line."""
    done = subprocess.run(
        [sys.executable, "-m", "agent", *words], capture_output=True, text=True, check=False, cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--once", "--pods", "nope", "--root", MACHINE),
        ("explain", "--manifest", "nope.yaml", "--root", MACHINE),
        ("record", "--root", "/nope"),
        ("record", "--name", "../x", "--root", MACHINE),
        ("record", "--root", MACHINE, "there.tar.xz"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_2(words: tuple[str, ...], tmp_path: Path) -> None:
    """What is not there, what may not be named so, and what is there already."""
    (tmp_path / "there.tar.xz").touch()
    code, said = called(*words, folder=tmp_path)
    assert code == 2, said


def test_a_configuration_that_is_none_is_named(tmp_path: Path) -> None:
    """The file stands in the sentence; a Pod is said to be one."""
    pod = tmp_path / "pod.yaml"
    pod.write_text("{apiVersion: v1, kind: Pod, metadata: {name: x}}")
    with pytest.raises(SettingsError, match=r'pod\.yaml.*kind: "Pod" is no configuration'):
        CliRunner().invoke(group, ["config", "check", str(pod)], catch_exceptions=False)
    short = tmp_path / "c.yaml"
    short.write_text("{memoryManagerPolicy: Static, compatibility: kubelet}")
    line = ["config", "check", str(short), "--root", MACHINE]
    with pytest.raises(SettingsError, match=r"c\.yaml"):
        CliRunner().invoke(group, line, catch_exceptions=False)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "config"])
def test_every_help_has_examples(name: str) -> None:
    """`--help` of each command, as the help of all promises; config has them at `config check`."""
    words = [name, "--help"]
    assert "Examples:" in CliRunner().invoke(group, words).output
    assert "Examples:" in CliRunner().invoke(group, ["config", "check", "--help"]).output


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), ("config", "check")], ids=" ".join)
def test_help_fits_a_terminal_of_80_columns(words: tuple[str, ...]) -> None:
    """No line of any --help is left for the terminal to fold."""
    told = CliRunner().invoke(group, [*words, "--help"], env={"COLUMNS": "80"}, terminal_width=80).output
    assert [line for line in told.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", ["run", "state", "verify", "release", "explain", "plan", "simulate", "topology"])
def test_the_output_option_is_spelt_alike(name: str) -> None:
    """-o is --output wherever there is one."""
    assert "-o, --output" in CliRunner().invoke(group, [name, "--help"]).output


def test_what_a_pod_spans_is_named(tmp_path: Path) -> None:
    """A pod over two nodes is said to lie on them, and not that something is not as good as it could be."""
    for name, cpu in (("one", "3"), ("two", "3"), ("wide", "2")):
        (tmp_path / f"{name}.yaml").write_text(
            f"{{kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: app, resources: "
            f'{{limits: {{cpu: "{cpu}", memory: 1Mi}}}}}}]}}}}'
        )
    machine = "synthetic:2 sockets x 4 cores, 8G per node"
    config = tmp_path / "config"
    config.write_text('{reservedSystemCPUs: "0"}')
    line = ["run", "--once", "--pods", str(tmp_path), "--root", machine, "--config", str(config)]
    line[3:4] = [str(tmp_path)]
    said = CliRunner().invoke(group, [*line, "--state-dir", str(tmp_path / "state")], env={"COLUMNS": "120"}).output
    assert "not as good as" not in said


def test_the_plugin_says_what_kubectl_says_to_people(tmp_path: Path) -> None:
    """Lines of kubectl's log, which repeat the fault, are left out."""
    fake = tmp_path / "kubectl"
    log = "E1123 10:00:00.000000 1 memcache.go:265] couldn't get current server API group list"
    said = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
    fake.write_text(f'#!/bin/sh\n(echo "{log}"; echo "{log}"; echo \'{said}\') >&2\nexit 1\n')
    fake.chmod(0o755)
    plugin = Path(__file__).parents[2] / "deploy/kubectl-numalign"
    done = subprocess.run(
        [sys.executable, str(plugin), "pods"], capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"kubectl numalign: {said}\n")


def test_a_template_is_said_to_be_one(tmp_path: Path) -> None:
    """Braces of Helm in a manifest: the remedy is to render it."""
    (tmp_path / "chart.yaml").write_text("kind: Pod\nmetadata: {name: {{ .Values.foo }}}\n")
    code, said = called("simulate", "--pods", str(tmp_path / "chart.yaml"), "--root", MACHINE, folder=tmp_path)
    assert code == 2
    assert "looks like an unrendered template" in said


def test_another_machines_ledger_is_said_to_be_one(tmp_path: Path) -> None:
    """A run with the folder of another machine says so, and names the way out."""
    (tmp_path / "db.yaml").write_text("{kind: Pod, metadata: {name: db}, spec: {containers: [{name: app}]}}")
    common = ["run", "--once", "--pods", str(tmp_path), "--state-dir", str(tmp_path / "state"), "--root"]
    CliRunner().invoke(group, [*common, MACHINE])
    said = "was of another machine"
    assert said not in CliRunner().invoke(group, [*common, MACHINE]).output
    assert said in CliRunner().invoke(group, [*common, "synthetic:1 socket x 2 cores"]).output
    assert said not in CliRunner().invoke(group, [*common, "synthetic:1 socket x 2 cores", "--afresh"]).output


def test_explain_takes_workloads_and_standard_input(tmp_path: Path) -> None:
    """A Deployment is explained by one of its pods; a manifest may come from a pipe."""
    template = "{spec: {containers: [{name: app, resources: {limits: {cpu: '2', memory: 1Mi}}}]}}"
    (tmp_path / "web.yaml").write_text(
        f"{{kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 3, template: {template}}}}}"
    )
    line = ["explain", "--root", MACHINE, "--manifest"]
    done = CliRunner().invoke(group, [*line, str(tmp_path / "web.yaml")])
    assert done.exit_code == 0, done.exception
    assert done.output.count("would be aligned") == 1
    pod = "{kind: Pod, metadata: {name: db}, spec: {containers: [{name: app}]}}"
    piped = CliRunner().invoke(group, [*line, "-"], input=pod)
    assert "default/db would run on the shared pool" in piped.output, piped.exception
