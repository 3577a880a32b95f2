"""The same on the kernel's own cpuset hierarchy: processes confined by it, kill -9, SIGTERM, nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.app.places import MOUNT
from agent.errors import HostError
from agent.host.cgroups.mounts import find_mounts
from agent.host.standin import OWN_FOLDER, RealStandIn, has_kubelet
from tests import patience
from tests.flow.world import container, manifest

pytestmark = pytest.mark.root_cgroup


@pytest.fixture
def own() -> Iterator[Path]:
    """Our own folder on this machine's hierarchy; it must not be there before, and not after."""
    try:
        if has_kubelet(MOUNT):
            pytest.skip("a kubelet serves this machine")
        RealStandIn(MOUNT).close()
    except HostError as error:
        pytest.skip(f"no cpuset hierarchy that may be written: {error}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU is not enough for an exclusive one and a shared pool")
    folder = Path(find_mounts(MOUNT).cpuset) / OWN_FOLDER
    assert not folder.exists()
    yield folder
    RealStandIn(MOUNT).close()


def start(folder: Path, config: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """`numalign run` as a process, and its first answer."""
    command = [
        sys.executable, "-m", "agent", "run", "--pods", f"{folder}/pods", "--state-dir", f"{folder}/state",
        "--config", str(config), "--cgroup-root", MOUNT, "--metrics-address", "off", "--output", "json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1].rstrip() != "}":
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()[1]
    return process, json.loads("".join(lines))


def test_the_kernel_confirms_the_table_and_a_kill_moves_nothing(tmp_path: Path, own: Path) -> None:
    """Cpus_allowed_list equals the grant; the next start after kill -9 finds it so; SIGTERM leaves nothing."""
    (tmp_path / "pods").mkdir()
    online = min(os.sched_getaffinity(0))
    config = tmp_path / "config.yaml"
    config.write_text(f"reservedSystemCPUs: '{online}'\n", "utf-8")
    bodies = [
        manifest("db", container(cpu="1"), inits=[container("init", cpu="1")]),
        manifest("web", container(cpu="", memory=""), created=1),
    ]
    for body in bodies:
        (tmp_path / "pods" / f"{body['metadata']['name']}.yaml").write_text(yaml.safe_dump(body), "utf-8")
    answers = []
    for ending in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        process, answer = start(tmp_path, config)
        answers.append({(row["uid"], row["container"]): row for row in answer["containers"]})
        process.send_signal(ending)
        process.communicate()
        assert process.returncode == (-9 if ending is signal.SIGKILL else 0)
        assert own.exists() == (ending is signal.SIGKILL)
    first = answers[0]
    assert first["db", "app"]["cpus"]
    for row in first.values():
        assert row["kernel"]["cpusAllowed"] == (row["cpus"] or row["shared"])
    for later in answers[1:]:
        for key in (("db", "app"), ("web", "app")):
            assert later[key] == first[key]


def test_two_runs_do_not_share_a_folder(own: Path) -> None:
    """The second is told; once the first ended, it can begin."""
    first = RealStandIn(MOUNT)
    with pytest.raises(HostError, match="another run of numalign has its cgroups in numalign"):
        RealStandIn(MOUNT)
    first.close()
    RealStandIn(MOUNT).close()
    assert not own.exists()


def test_a_folder_that_another_user_left_is_no_place_for_pods(own: Path) -> None:
    """The remedy is told at the start, and not a fault at the first pod; `auto` then takes a scratch tree."""
    begin = "import encodings.ascii, os; from agent.host.standin import RealStandIn"
    subprocess.run([sys.executable, "-c", f"{begin}; RealStandIn({MOUNT!r}); os._exit(0)"], check=True)
    command = [sys.executable, "-c", f"{begin}; os.setuid(65534); RealStandIn({MOUNT!r})"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "HostError" in told
    assert "cgroups cannot be made here (Permission denied); run as root" in told
    RealStandIn(MOUNT).close()
    assert not own.exists()


def test_killed_processes_are_gone_before_the_folder_is(tmp_path: Path, own: Path) -> None:
    """After kill -9 the containers' processes end by themselves, and the next life's end removes the folder."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "web.yaml").write_text(yaml.safe_dump(manifest("web", container(cpu=""))), "utf-8")
    config = tmp_path / "config.yaml"
    config.write_text("{}\n", "utf-8")
    process, _ = start(tmp_path, config)
    process.kill()
    process.communicate()
    patience.until(lambda: not any(file.read_text("ascii") for file in own.rglob("cgroup.procs")), "their end")
    RealStandIn(MOUNT).close()
    assert not own.exists()
