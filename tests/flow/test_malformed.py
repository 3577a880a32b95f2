"""Every malformed input of `numalign run` and `state`: one sentence on stderr, an exit code, never a traceback."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import cli
from agent.host.machines import open_machine

MACHINE = "synthetic:1 socket x 1 node x 4 cores x 1 thread"
POD = (
    "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: x, resources: {limits: {cpu: '1', memory: 1Mi}}}]}\n"
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`numalign ARGUMENTS` in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["numalign", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return int(ended.value.code or 0), told.out, told.err

    return call


def once(folder: Path, *more: str) -> tuple[str, ...]:
    """The arguments of one pass over folder/pods."""
    pods = folder / "pods"
    pods.mkdir(exist_ok=True)
    (pods / "a.yaml").write_text(POD, "utf-8")
    root = () if "--root" in more else ("--root", MACHINE)
    return ("run", "--once", "--pods", str(pods), "--state-dir", str(folder / "state"), *root, *more)


def test_a_good_pass_says_nothing_on_stderr(tmp_path: Path, run: Run) -> None:
    """The yardstick for the others."""
    code, out, err = run(*once(tmp_path))
    assert (code, err) == (0, "")
    assert "default/a" in out


def test_a_wrong_manifest_is_told_and_the_rest_served(tmp_path: Path, run: Run) -> None:
    """Exit code 2; the good pod is in the table."""
    arguments = once(tmp_path)
    (tmp_path / "pods" / "b.yaml").write_text("kind: Pod\nmetadata: {name: b}\nspec: {containers: 7}\n", "utf-8")
    code, out, _ = run(*arguments)
    assert code == 2
    assert "wrong manifest, not served: b.yaml: spec.containers: " in out
    assert "default/a" in out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cpuManagerPolicy: [", "config.yaml:1: while parsing a flow node"),
        ("cpuManagerPolicy: fast", "cpuManagerPolicy: "),
        ("cpuManagerPolcy: static", "did you mean cpuManagerPolicy"),
        ("reservedSystemCPUs: 0-9", "reserved-cpus: 0-9 is not a subset of online-cpus: 0-3"),
        ("reservedSystemCPUs: 0-3", "leave some to the pods"),
        ("kubeReserved: {cpu: '4'}", "4 CPUs are reserved, and this machine has 4"),
        ("{memoryManagerPolicy: Static, compatibility: kubelet, kubeReserved: {cpu: 1}}", "reservedMemory"),
        ("a: 1\na: 2", '"a" is there twice'),
        ("[]", "must be"),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, run: Run, text: str, sentence: str) -> None:
    """Exit code 2, the file, the key and the remedy; nothing was saved."""
    config = tmp_path / "config.yaml"
    config.write_text(text, "utf-8")
    code, out, err = run(*once(tmp_path, "--config", str(config)))
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "state" / "checkpoint.json").exists()


def test_a_configuration_that_is_not_there(tmp_path: Path, run: Run) -> None:
    """The file is named."""
    code, _, err = run(*once(tmp_path, "--config", str(tmp_path / "none.yaml")))
    assert code == 2
    assert "none.yaml: cannot be read: No such file or directory" in err


@pytest.mark.parametrize(
    ("spec", "code", "sentence"),
    [
        ("no-such-machine", 2, "no such folder or archive, nor a known machine; known: "),
        ("two-socket", 2, "did you mean two-sockets?"),
        ("2 sockets x 4 cores", 2, "a description begins with synthetic: (synthetic:2 sockets x 2 nodes"),
        ("synthetic:2 sockets x banana", 2, "banana"),
        ("/dev/null", 3, "/dev/null"),
    ],
)
def test_a_wrong_machine(tmp_path: Path, run: Run, spec: str, code: int, sentence: str) -> None:
    """What --root cannot mean."""
    found, _, err = run(*once(tmp_path, "--root", spec))
    assert found == code
    assert sentence in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sys/devices/system/cpu/online", "0-banana"),
        ("sys/devices/system/node/node0/cpulist", "3-1"),
    ],
)
def test_a_malformed_sysfs_file(tmp_path: Path, run: Run, file: str, text: str) -> None:
    """The file is named, in one sentence."""
    tree = tmp_path / "machine"
    shutil.copytree(Path(__file__).parent / "tree", tree)
    assert open_machine(str(tree)).online
    (tree / file).write_text(f"{text}\n", "utf-8")
    code, _, err = run(*once(tmp_path, "--root", str(tree)))
    assert code == 3
    assert file in err
    assert len(err.splitlines()) == 1


def test_a_fact_that_can_be_done_without_is_told(tmp_path: Path, run: Run) -> None:
    """A node whose memory cannot be read is taken to have none; the table says so."""
    tree = tmp_path / "machine"
    shutil.copytree(Path(__file__).parent / "tree", tree)
    (tree / "sys/devices/system/node/node0/meminfo").write_text("Node 0 MemTotal: lots kB\n", "utf-8")
    code, out, _ = run(*once(tmp_path, "--root", str(tree)))
    assert code == 0
    assert "machine: sys/devices/system/node/node0/meminfo: has no MemTotal" in out


def flipped(data: bytes) -> bytes:
    """One bit in the middle is another."""
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def newer(data: bytes) -> bytes:
    """Written by a version of the future."""
    head, _, payload = data.partition(b"\n")
    return json.dumps({**json.loads(head), "numalign": 99}).encode() + b"\n" + payload


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[: len(data) // 2], "bytes where"),
        (flipped, "its checksum differs"),
        (lambda _data: b"", "is no ledger of numalign: its first line is not the checksum"),
        (lambda _data: b"{}\n{}", "is no ledger of numalign: its first line is not the checksum"),
        (lambda _data: b"\x00" * 4096, "is no ledger of numalign: its first line is not the checksum"),
        (newer, "is of format 99"),
    ],
    ids=["truncated", "bit flipped", "empty", "foreign", "zeros", "newer"],
)
def test_a_damaged_checkpoint(tmp_path: Path, run: Run, damage: Callable[[bytes], bytes], sentence: str) -> None:
    """Put aside under a name of its own, told, and rebuilt from the cgroups: the pod keeps its very CPUs."""
    assert run(*once(tmp_path))[0] == 0
    store = tmp_path / "state" / "checkpoint.json"
    before = json.loads(store.read_bytes().partition(b"\n")[2])["ledger"]["cpus"]
    store.write_bytes(damage(store.read_bytes()))
    code, _, err = run("state", "--state-dir", str(tmp_path / "state"), "--root", MACHINE)
    assert code == 3
    assert sentence in err
    code, out, err = run(*once(tmp_path))
    assert code == 0
    assert sentence in err
    assert "it was put aside as checkpoint.json.corrupt-" in " ".join(out.split()), "whatever the width, and the path"
    assert json.loads(store.read_bytes().partition(b"\n")[2])["ledger"]["cpus"] == before
    assert len(list((tmp_path / "state").glob("checkpoint.json.corrupt-*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("run",), 2, "--pods"),
        (("run", "--pods"), 2, "requires an argument"),
        (("run", "--output", "xml"), 2, "is not one of"),
        (("fly",), 2, "No such command 'fly'"),
        (("state", "--state-dir", "/nonexistent"), 3, "is not there: no agent has saved anything"),
    ],
)
def test_a_wrong_command_line(run: Run, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    """Click's own errors keep their usage line."""
    found, _, err = run(*arguments)
    assert found == code
    assert sentence in err


def test_a_wrong_address(tmp_path: Path, run: Run) -> None:
    """--metrics-address is checked before anything is served."""
    arguments = [each for each in once(tmp_path, "--metrics-address", "nowhere") if each != "--once"]
    code, _, err = run(*arguments)
    assert code == 2
    assert "--metrics-address" in err


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help(run: Run, name: str) -> None:
    """It opens with a sentence and lists options; the list of commands has a line for it."""
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: numalign {name}")
    assert cli.COMMANDS[name].endswith(".")


def test_help_imports_nothing_heavy() -> None:
    """`numalign --help` stays quick: no sub-command and none of what they need is loaded."""
    import subprocess  # noqa: PLC0415 - used here only

    code = (
        "import sys; from agent import cli; sys.argv = ['numalign', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'kopf', 'kubernetes', 'prometheus_client', 'grpc', 'yaml', 'agent.app'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
