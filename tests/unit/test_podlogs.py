"""Uids and containers of static pods, by the names in the kubelet's log folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import HostError
from agent.host.podlogs import read_pod_logs

HASH, OLD = "0123456789abcdef" * 2, "f" * 32
ID = "ab" * 32


def log(root: Path, pod: str, container: str, number: str) -> None:
    """What the kubelet makes for one container."""
    namespace, name, _ = pod.split("_")
    folder = root / "pods" / pod / container
    folder.mkdir(parents=True)
    (root / "containers").mkdir(exist_ok=True)
    link = root / "containers" / f"{name}_{namespace}_{container}-{number}.log"
    link.symlink_to(folder / "0.log")


def test_uid_and_containers_are_found(tmp_path: Path) -> None:
    """A static pod's uid is the kubelet's hash; an API pod's has dashes; both are there."""
    log(tmp_path, f"kube-system_etcd-node-1_{HASH}", "etcd", ID)
    log(tmp_path, "default_web-7d9_5e2b1c3a-1111-2222-3333-444455556666", "app", "cd" * 32)
    found = read_pod_logs(tmp_path)
    assert found.uids == {
        ("kube-system", "etcd-node-1"): HASH,
        ("default", "web-7d9"): "5e2b1c3a-1111-2222-3333-444455556666",
    }
    assert found.containers[ID] == (HASH, "etcd")


def test_of_two_lives_of_a_pod_the_newest_counts(tmp_path: Path) -> None:
    """The folder of a manifest's earlier version stays for a while."""
    for uid, when in ((OLD, 1_000_000), (HASH, 2_000_000)):
        folder = tmp_path / "pods" / f"default_web-node_{uid}"
        folder.mkdir(parents=True)
        os.utime(folder, (when, when))
    assert read_pod_logs(tmp_path).uids == {("default", "web-node"): HASH}


def test_other_names_and_lies_are_not_believed(tmp_path: Path) -> None:
    """Files of others, links that lead nowhere, and a link whose pod is not the folder's."""
    log(tmp_path, f"default_web-node_{HASH}", "app", ID)
    (tmp_path / "containers" / f"other_default_app-{'cd' * 32}.log").symlink_to(
        tmp_path / "pods" / f"default_web-node_{HASH}" / "app" / "0.log"
    )
    (tmp_path / "containers" / "README").write_text("x", "utf-8")
    (tmp_path / "containers" / f"a_b_c-{'ef' * 32}.log").write_text("no link", "utf-8")
    (tmp_path / "pods" / "nonsense").mkdir()
    found = read_pod_logs(tmp_path)
    assert found.containers == {ID: (HASH, "app")}
    assert len(found.uids) == 1


def test_nothing_there_is_nothing_found(tmp_path: Path) -> None:
    """A node whose kubelet has written nothing yet; a folder that cannot be listed is a fault."""
    assert read_pod_logs(tmp_path).uids == {}
    (tmp_path / "pods").write_text("a file", "utf-8")
    with pytest.raises(HostError, match="pods: cannot be listed: Not a directory"):
        read_pod_logs(tmp_path)
