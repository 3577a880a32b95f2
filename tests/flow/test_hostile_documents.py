"""Finding 26: a hostile file costs one sentence that names it; no document hangs or ends a command, or the agent."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agent.cli import group
from agent.errors import NumalignError
from tests.flow.program import running
from tests.flow.serving import MACHINE, serving, write
from tests.flow.world import container, manifest
from tests.patience import until


def merges(levels: int) -> str:
    """Merge keys that stand for 9 values to the power of so many levels."""
    return "\n".join(
        ["m0: &m0 {k: v}"]
        + [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, levels + 1)]
        + [f"kubeReserved: {{<<: *m{levels}}}"]
    )


MERGES = merges(8)
LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)] + ["kind: *a8"]
)
BOMBS = {
    "merge keys": MERGES,
    "laughs": LAUGHS,
    "lists": "[" * 30_000,
    "closed lists": "[" * 30_000 + "]" * 30_000,
    "mappings": "{a: " * 30_000,
    "block lists": "- " * 30_000 + "x",
    "keys": "? " * 30_000,
    "itself": "a: &a [*a]",
    "itself merged": "a: &a {<<: *a}",
    "hexadecimal": "a: 0x" + "f" * 500_000,
    "sexagesimal": "a: 1" + ":1" * 250_000,
    "tagged": "a: !!int '1" + ":1" * 250_000 + "'",
    "control": "a: \x07\x1b[31m",
    "many": "- 1\n" * 250_000,
    "nothing": "\0\0\0\0",
}


def ask(line: list[str]) -> str:
    """What a command that refuses its input says; our own faults are what `numalign` prints as one sentence."""
    result = CliRunner().invoke(group, line)
    if isinstance(result.exception, NumalignError):
        return str(result.exception)
    assert isinstance(result.exception, SystemExit), (line, result.exception)
    assert result.exit_code in (1, 2)
    return result.output


@pytest.mark.parametrize("bomb", BOMBS, ids=[name.replace(" ", "-") for name in BOMBS])
def test_commands_refuse_bombs_with_one_sentence(bomb: str, tmp_path: Path) -> None:
    """`config check`, `run --pods`, `simulate`, `explain`: exit code 2, a sentence with the file, no traceback."""
    (tmp_path / "pods").mkdir()
    file = tmp_path / "pods" / "bomb.yaml"
    file.write_text(BOMBS[bomb], "utf-8")
    (tmp_path / "good").mkdir()
    write(tmp_path / "good", "good", container(cpu="2"))
    state = ["--state-dir", str(tmp_path / "state")]
    for line in (
        ["config", "check", str(file), "--root", MACHINE],
        ["run", "--pods", str(file.parent), "--once", "--root", MACHINE, "--no-processes", *state],
        ["simulate", "--pods", str(file), "--root", MACHINE],
        ["simulate", "--pods", f"{tmp_path}/good", "--scenario", str(file), "--root", MACHINE],
        ["explain", "--manifest", str(file), "--root", MACHINE, *state],
    ):
        told = ask(line)
        assert "bomb.yaml" in told, line
        assert len(told) < 10_000


def test_merge_keys_count_for_all_that_they_stand_for(tmp_path: Path) -> None:
    """Half a million values in 400 bytes, which could still be read: refused for their number, wherever they are."""
    (tmp_path / "pods").mkdir()
    file = tmp_path / "pods" / "bomb.yaml"
    file.write_text(merges(6), "utf-8")
    state = ["--root", MACHINE, "--state-dir", str(tmp_path / "state")]
    for line in (
        ["config", "check", str(file), "--root", MACHINE],
        ["run", "--pods", str(file.parent), "--once", "--no-processes", *state],
    ):
        assert "aliases and merge keys counted" in ask(line), line


def odd_files(folder: Path) -> list[socket.socket]:
    """A FIFO, a socket, a device, a folder, an endless one, links, and one too large, all with a manifest's name."""
    os.mkfifo(folder / "fifo.yaml")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket.yaml"))
    (folder / "device.yaml").symlink_to("/dev/zero")
    (folder / "tty.yaml").symlink_to("/dev/tty")
    (folder / "folder.yaml").mkdir()
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "none.yaml").symlink_to("nothing")
    (folder / "linked-fifo.yaml").symlink_to("fifo.yaml")
    (folder / "large.yaml").write_bytes(b"#" * (2 << 20))
    (folder / "deep.json").write_text("[" * 100_000, "utf-8")
    (folder / "surrogate.json").write_text(
        '{"kind": "Pod", "metadata": {"name": "s", "annotations": {"numalign.io/policy": "\\ud800"}}, "spec": {}}'
    )
    return [listening]


ODD = 11


@pytest.mark.timeout(300)
def test_a_folder_of_odd_files_holds_nobody_up(tmp_path: Path) -> None:
    """The real process serves the good manifest beside them, names each file that is none, and ends on SIGTERM."""
    pods = tmp_path / "pods"
    pods.mkdir()
    write(pods, "good", container(cpu="2"))
    kept = odd_files(pods)
    for name, text in BOMBS.items():
        (pods / f"bomb-{name.replace(' ', '-')}.yaml").write_text(text, "utf-8")
    with running(tmp_path) as program:
        for name in ("fifo", "socket", "device", "folder", "loop", "none", "linked-fifo", "large"):
            program.says(rf"{name}\.yaml")
        for name in BOMBS:
            program.says(rf"bomb-{name.replace(' ', '-')}\.yaml")
        until(lambda: 'numalign_pods{state="pinned"} 1.0' in program.get("/metrics")[1], "the good pod is pinned")
        assert program.end() == 0
    for each in kept:
        each.close()


def test_an_odd_file_that_comes_later_costs_a_sentence(tmp_path: Path) -> None:
    """While the folder is followed: what was served stays, what comes after is served."""
    with serving(tmp_path) as node:
        pods = tmp_path / "pods"
        write(pods, "first", container(cpu="1"))
        until(lambda: node.held().get("first", "") not in ("", "shared"))
        kept = odd_files(pods)
        (pods / "bomb.yaml").write_text(MERGES, "utf-8")
        write(pods, "second", container(cpu="1"))
        until(lambda: node.held().get("second", "") not in ("", "shared"))
        assert "first" in node.held()
        assert node.get("/healthz")[0] == 200
        for each in kept:
            each.close()


@pytest.mark.parametrize("bomb", ["merge keys", "laughs", "lists"])
def test_settings_that_turn_hostile_leave_the_old_ones(bomb: str, tmp_path: Path) -> None:
    """A configuration that becomes a bomb is told and not followed; the loop turns on, pods are served."""
    config = tmp_path / "config.yaml"
    config.write_text("kubeReserved: {cpu: '1'}\n", "utf-8")
    with serving(tmp_path, config=config) as node:
        config.write_text(BOMBS[bomb], "utf-8")
        write(tmp_path / "pods", "later", container(cpu="1"))
        until(lambda: node.held().get("later", "") not in ("", "shared"))
        assert node.get("/healthz")[0] == 200


def test_plain_anchors_and_merges_still_work(tmp_path: Path) -> None:
    """What people write with anchors is read as before."""
    body = manifest("plain", container(cpu="2"))
    limits = body["spec"]["containers"][0]["resources"]["limits"]
    body["spec"]["containers"][0]["resources"]["requests"] = limits  # the same object: dumped as an alias
    text = yaml.safe_dump(body)
    assert "*id001" in text
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "plain.yaml").write_text(text, "utf-8")
    config = tmp_path / "config.yaml"
    config.write_text("kubeReserved: &r {cpu: '1'}\nsystemReserved: {<<: *r}\n", "utf-8")
    line = [
        "run",
        "--pods",
        f"{tmp_path}/pods",
        "--once",
        "--root",
        MACHINE,
        "--no-processes",
        "--config",
        str(config),
    ]
    result = CliRunner().invoke(group, [*line, "--state-dir", f"{tmp_path}/state"])
    assert result.exit_code == 0, result.output
