"""`numalign config check` and the file behind it: what is in force, what is ignored, and one sentence if not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli.config import command
from agent.errors import SettingsError
from agent.host.settings_file import LARGEST, read_settings

MACHINE = "synthetic:2 sockets x 4 cores x 2 threads, 8G per node"
SNIPPET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: restricted
kubeReserved: {cpu: 1500m, memory: 1Gi}
memoryManagerPolicy: Static
reservedMemory:
- numaNode: 0
  limits: {memory: 1124Mi}
maxPods: 110
"""


def run(tmp_path: Path, text: str, *more: str) -> Result:
    """The command on a file with this text."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return CliRunner().invoke(command, ["check", str(file), *more])


def test_a_snippet_is_checked_on_a_machine(tmp_path: Path) -> None:
    """The text names what is in force, what the reservations come to, and what is ignored; exit code 0."""
    result = run(tmp_path, SNIPPET, "--root", MACHINE)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["topologyManagerPolicy", "restricted"] in lines
    assert ["topologyManagerScope", "container", "(default)"] in lines
    assert ["reservedCpus", "0,8"] in lines
    assert "on 2 sockets x 4 cores x 2 threads, 8G per node:" in result.output.splitlines()
    assert {'"1Gi"}', '"1124Mi"}}]'} <= {line[-1] for line in lines}
    assert result.output.splitlines()[-1].endswith("that numalign does not need: maxPods")
    assert "  cpuManagerPolicy is not set: numalign takes static, where the kubelet takes none" in result.output


def test_the_same_as_json(tmp_path: Path) -> None:
    """For programs: settings as the file writes them, the ignored keys, the machine."""
    result = run(tmp_path, SNIPPET, "--root", MACHINE, "--output", "json")
    answer = json.loads(result.output)
    assert answer["usable"] is True
    assert answer["settings"]["kubeReserved"] == {"cpu": "1500m", "memory": "1073741824"}
    assert answer["machine"]["reservedMemory"] == {"0": {"memory": 1124 << 20}}
    assert len(answer["ignored"]) == 1


@pytest.mark.parametrize(
    ("text", "root", "why"),
    [
        ("topologyManagerPolcy: none", None, "topologyManagerPolcy: is not a setting"),
        ("reservedSystemCPUs: 0-63", MACHINE, "reservedSystemCPUs: reserved-cpus: 0-63 is not a subset"),
        (SNIPPET.replace("1124Mi", "1Gi"), MACHINE, 'reservedMemory: the total amount "1Gi" of type "memory"'),
        (SNIPPET.replace("numaNode: 0", "numaNode: 7"), MACHINE, "references a NUMA node 7 that does not exist"),
        (
            "cpuManagerPolicyOptions: {align-by-socket: true}\ntopologyManagerPolicy: single-numa-node", None,
            "cpuManagerPolicyOptions.align-by-socket: ",
        ),
        (
            "cpuManagerPolicyOptions: {no-such: true}", None,
            'unknown CPU Manager Policy option: "no-such"; kubelets up to 1.38 know align-by-socket, ',
        ),
        ("compatibility: kubelet", MACHINE, "kubeReserved.cpu: [cpumanager] unable to determine reserved CPU"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, root: str | None, why: str) -> None:
    """As JSON the refusal is an answer too; exit code 2."""
    result = run(tmp_path, text, "--output", "json", *(["--root", root] if root else []))
    assert result.exit_code == 2
    assert why in json.loads(result.output)["error"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a: 1\nobserveOnly: true\na: 2\n", r':3: "a" is there twice'),
        (b"a: [1\n", ":1: while parsing a flow sequence"),
        (b"a: 1\n---\nb: 2\n", "holds 2 documents that could be the configuration"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"a: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        (b"- 1\n", "must be a mapping"),
        (b"waiting: {limit: 5m, limit: 6m}\n", "is there twice"),
        (b"[" * 3000, "nested deeper than 64 levels"),
        (b"x" * (LARGEST + 1), "is larger than"),
    ],
    ids=["twice", "open", "two", "bytes", "python", "list", "inner", "deep", "large"],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, data: bytes, why: str) -> None:
    """The error starts with the file, and with the line where YAML knows it."""
    file = tmp_path / "config.yaml"
    file.write_bytes(data)
    with pytest.raises(SettingsError, match=why) as caught:
        read_settings(file)
    assert str(caught.value).startswith(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is named with the system's reason."""
    with pytest.raises(SettingsError, match="No such file or directory; name a readable file"):
        read_settings(tmp_path / "none.yaml")
