"""CRI-O in a guest, without a guest: what it is told, what the kubelet is told of it, and how its disk is filled."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import crio, images, reading, store
from tests.lab.node import Node, Plan, kubelet_config, runtime_files

NUMBER = "c" * 64


@pytest.mark.parametrize(("driver", "monitor"), [("systemd", "system.slice"), ("cgroupfs", "pod")])
@pytest.mark.parametrize("nri", [True, False])
def test_it_is_told_the_nodes_driver_and_whether_it_speaks_nri(driver: str, monitor: str, *, nri: bool) -> None:
    """Its file is TOML that says so; images come from the second disk, and its runc is Debian's."""
    plan = Plan(driver=driver, nri=nri, runtime="crio")
    told = tomllib.loads(runtime_files(plan)["/etc/crio/crio.conf"])["crio"]
    assert (told["runtime"]["cgroup_manager"], told["nri"]["enable_nri"]) == (driver, nri)
    assert told["runtime"]["runtimes"]["runc"]["monitor_cgroup"] == monitor
    assert told["root"].startswith("/var/lib/containerd/")
    assert told["image"]["pause_image"] == images.PLAY
    assert kubelet_config(plan)["containerRuntimeEndpoint"] == f"unix://{told['api']['listen']}"
    assert kubelet_config(Plan())["containerRuntimeEndpoint"] == "unix:///run/containerd/containerd.sock"


def test_a_command_in_a_container_goes_by_the_nodes_own_runtime() -> None:
    """By runc with CRI-O, whose containers ctr does not know."""
    nothing: Any = SimpleNamespace(run=None, put=None, get=None)
    there = {
        each: Node("n", Plan(runtime=each), nothing, nothing).in_container(NUMBER) for each in ("crio", "containerd")
    }
    assert there["crio"] == f"runc --root {crio.RUNC} exec {NUMBER}"
    assert there["containerd"].startswith("ctr -n k8s.io tasks exec ")


def test_the_monitor_of_a_container_is_not_taken_for_it() -> None:
    """With cgroupfs both lie in the pod's cgroup; the sets that count are the container's."""
    pods = [{"metadata": {"uid": "u"}, "status": {"containerStatuses": [
        {"name": "c", "containerID": f"cri-o://{NUMBER}"},
    ]}}]  # fmt: skip
    text = "".join(
        f"kubepods/podu/{folder}/{name}:{value}\n"
        for folder, cpus in ((f"crio-{NUMBER}", "2-3"), (f"crio-conmon-{NUMBER}", "0-15"))
        for name, value in (("cpuset.cpus.effective", cpus), ("cpuset.mems.effective", "0"))
    )
    node: Any = SimpleNamespace(plan=Plan(driver="cgroupfs", runtime="crio"), run=lambda _: text)
    assert reading.kernel(node, pods) == {"u": {"c": reading.Sets("2-3", "0")}}


def test_its_disk_has_every_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each archive is pulled into the store that it reads; containerd's disk has another name."""
    done, names = list[tuple[object, ...]](), list[str]()
    monkeypatch.setattr(crio, "run", lambda _log, *words: done.append(words))
    monkeypatch.setattr(store, "tool", Path)

    def made(name: str, _size: str, fill: Any) -> Path:  # noqa: ANN401 - a function of the folder
        names.append(name)
        fill(tmp_path)
        return tmp_path

    monkeypatch.setattr(store, "folder_disk", made)
    archives = [tmp_path / "b.tar", tmp_path / "a.tar"]
    store.image_disk(archives, "crio")
    assert [words[-1] for words in done] == [f"docker-archive:{tmp_path}/{each}.tar" for each in "ab"]
    assert {words[2] for words in done} == {tmp_path / Path(crio.STORE).name}
    monkeypatch.setattr(store, "folder_disk", lambda name, *_: names.append(name))
    store.image_disk(archives)
    assert len(set(names)) == 2
