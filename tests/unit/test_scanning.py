"""The kubelet's tree found and read: several kubelets, links, malformed files, pages, CPUs that go."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.errors import HostError, SysfsMalformedError
from agent.host.cgroups import Cgroups
from agent.host.cgroups.mounts import Mounts, find_mounts
from agent.host.cgroups.pages import affinities
from agent.host.scratch import Layout, Scratch
from agent.host.scratch.kernel import CpusetKernel
from agent.host.scratch.store import TreeFolder
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from tests.unit.listings import ID, NOISE, UID, G, I, build


def test_two_kubelets_are_told(tmp_path: Path) -> None:
    """With two roots at one depth nothing is guessed; a setting says which."""
    build(tmp_path / "fs", 2, ["/docker/n1/kubelet/kubepods", f"/docker/n2/kubelet/kubepods/pod{UID}"])
    with pytest.raises(HostError, match="cgroupRoot"):
        Cgroups(tmp_path / "fs").observe()
    named = Cgroups(tmp_path / "fs", kubepods="/docker/n2/kubelet/kubepods/").observe()
    assert [c.pod_uid for c in named.cgroups] == ["", UID]


def test_a_kubelet_in_a_container_is_not_ours(tmp_path: Path) -> None:
    """The outermost root wins: kubepods below a container of ours belongs to that container."""
    inner = f"/kubepods/pod{UID}/{ID}/kubelet/kubepods/podinner"
    build(tmp_path / "fs", 1, [inner])
    observed = Cgroups(tmp_path / "fs").observe()
    assert {c.pod_uid for c in observed.cgroups} == {"", UID}
    assert {c.level for c in observed.cgroups if "kubelet" in c.path} == {I}


def test_a_kubelet_that_comes_later_is_found(tmp_path: Path) -> None:
    """Before the first pod there is no kubepods; after a driver change it has another name."""
    build(tmp_path / "fs", 2, NOISE)
    cgroups = Cgroups(tmp_path / "fs")
    assert cgroups.observe().cgroups == ()
    kernel = CpusetKernel(2, TreeFolder(tmp_path / "fs", 2), CpuSet.of(0), NodeSet.of(0))
    kernel.mkdir("/kubepods")
    assert [c.path for c in cgroups.observe().cgroups] == ["/kubepods"]
    kernel.rmdir("/kubepods")
    kernel.mkdir("/kubepods.slice")
    assert [c.path for c in cgroups.observe().cgroups] == ["/kubepods.slice"]


def test_hierarchies_are_found(tmp_path: Path) -> None:
    """Unified, legacy with joined controllers, hybrid; without cpuset the error says what to do."""
    build(tmp_path / "v2", 2, [])
    assert find_mounts(str(tmp_path / "v2")).version == 2
    build(tmp_path / "v1", 1, [])
    (tmp_path / "v1" / "cpu").rename(tmp_path / "v1" / "cpu,cpuacct")
    (tmp_path / "v1" / "unified").mkdir()
    (tmp_path / "v1" / "unified" / "cgroup.controllers").write_text("hugetlb\n", "utf-8")
    mounts = find_mounts(f"{tmp_path}/v1/")
    assert (mounts.version, mounts.cpu, mounts.hybrid) == (1, f"{tmp_path}/v1/cpu,cpuacct", True)
    (tmp_path / "v1" / "unified" / "cgroup.controllers").write_text("cpuset cpu\n", "utf-8")
    assert find_mounts(f"{tmp_path}/v1").cpuset == f"{tmp_path}/v1/unified"
    with pytest.raises(HostError, match="cgroup_disable=cpuset"):
        Cgroups(tmp_path)


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """A symbolic link in the tree (no kernel makes one) is neither followed nor written through."""
    build(tmp_path / "fs", 2, [f"/kubepods/pod{UID}/{ID}"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "fs" / "kubepods" / "podevil").symlink_to(outside)
    cgroups = Cgroups(tmp_path / "fs")
    assert {c.pod_uid for c in cgroups.observe().cgroups} == {"", UID}
    (outside / "cgroup.events").write_text("populated 1\n", "utf-8")
    file = tmp_path / "fs" / "kubepods" / f"pod{UID}" / "cpuset.cpus"
    file.unlink()
    file.symlink_to(outside / "cgroup.events")
    with pytest.raises(SysfsMalformedError, match="symbolic links"):
        cgroups.observe()


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    """What the kernel would never say gives one error with the file's path."""
    build(tmp_path / "fs", 2, [f"/kubepods/pod{UID}"])
    (tmp_path / "fs" / "kubepods" / f"pod{UID}" / "cpuset.cpus").write_text("0-\n", "utf-8")
    with pytest.raises(SysfsMalformedError, match=rf"pod{UID}/cpuset\.cpus: .*is no number or range"):
        Cgroups(tmp_path / "fs").observe()


@pytest.mark.parametrize("version", [1, 2])
def test_s4_pages_by_node(tmp_path: Path, version: int) -> None:
    """Where a container's memory lies is told in bytes per node, on both versions; unknown is nothing."""
    setup = Layout(version=version)
    tree = Scratch.create(tmp_path / "s", cpus=CpuSet.of(0), nodes=NodeSet.of(0, 1), setup=setup)
    tree.add_pod(UID, G)
    path = tree.add_container(UID, ID)
    cgroups = Cgroups(tree.folder)
    assert cgroups.pages(path) == {}
    tree.put_pages(path, {0: 0, 1: 8 << 20})
    assert cgroups.pages(path) == {1: 8 << 20}
    if version == 2:
        (tree.folder / path.strip("/") / "hugetlb.2MB.numa_stat").write_text(
            "total=4194304 N0=4194304 N1=0\n", "utf-8"
        )
        (tree.folder / path.strip("/") / "memory.numa_stat").write_text(
            "anon N0=4096 N1=0\nfile N0=0 N1=8192\nshmem N0=0 N1=8192\ninactive_anon N0=4096 N1=0\n", "utf-8"
        )
        assert cgroups.pages(path) == {0: 4096 + 4194304, 1: 8192}
        (tree.folder / path.strip("/") / "memory.numa_stat").write_text("anon N0=x\n", "utf-8")
        with pytest.raises(SysfsMalformedError, match=r"memory\.numa_stat"):
            cgroups.pages(path)


@pytest.mark.parametrize("version", [1, 2])
def test_s7_touched_is_anonymous_and_shared_memory(tmp_path: Path, version: int) -> None:
    """Page cache is not in it; v1 counts shared memory as files, in pages, with those of the cgroups below apart."""
    tree = Scratch.create(tmp_path / "s", cpus=CpuSet.of(0), nodes=NodeSet.of(0, 1), setup=Layout(version=version))
    path, cgroups = tree.add_pod(UID, G), Cgroups(tree.folder)
    tree.put_pages(path, {0: 4096})
    (file,) = tree.folder.rglob("memory.numa_stat")
    v1 = "total=9 N0=9 N1=0\nanon=1 N0=1 N1=0\nhierarchical_total=9 N0=9 N1=0\nhierarchical_anon=3 N0=1 N1=2\n"
    v2 = "anon N0=4096 N1=0\nfile N0=99 N1=16384\nshmem N0=0 N1=8192\ninactive_anon N0=4096 N1=0\n"
    file.write_text(v1 if version == 1 else v2, "utf-8")
    page = os.sysconf("SC_PAGE_SIZE") if version == 1 else 4096
    assert cgroups.touched(path) == {0: page, 1: 2 * page}
    assert cgroups.touched(f"{path}/gone") == {}


def test_a_scratch_tree_opens_again(tmp_path: Path) -> None:
    """All state is in the folder; a folder with other things in it, or without a tree, is refused."""
    tree = Scratch.create(tmp_path / "s", cpus=CpuSet.of(0, 1), nodes=NodeSet.of(0))
    tree.add_pod(UID, G)
    tree.add_container(UID, ID, processes=2)
    again = Scratch(tmp_path / "s")
    assert (again.layout, again.rules.possible_cpus) == (tree.layout, CpuSet.of(0, 1))
    assert Cgroups(again.folder).observe() == Cgroups(tree.folder).observe()
    with pytest.raises(HostError, match="not empty"):
        Scratch.create(tmp_path / "s", cpus=CpuSet.of(0), nodes=NodeSet.of(0))
    with pytest.raises(HostError, match="no scratch tree"):
        Scratch(tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_cpus_go_offline_and_return(tmp_path: Path, version: int) -> None:
    """v2 remembers what was asked for; v1 takes it out of the set for good, and empties what had nothing else."""
    tree = Scratch.create(
        tmp_path / "s", cpus=CpuSet.of(0, 1, 2, 3), nodes=NodeSet.of(0), setup=Layout(version=version)
    )
    pod = tree.add_pod(UID, G)
    path = tree.add_container(UID, ID)
    for where in (path, pod):
        tree.kernel_write(where, "cpuset.cpus", "2-3")
    cgroups = Cgroups(tree.folder)
    tree.online(CpuSet.of(0, 1, 2))
    shrunk = cgroups.observe().cgroups[-1]
    assert (str(shrunk.cpus), str(shrunk.effective_cpus)) == (("2", "2") if version == 1 else ("2-3", "2"))
    tree.online(CpuSet.of(0, 1))
    gone = cgroups.observe().cgroups[-1]
    assert (str(gone.cpus), str(gone.effective_cpus)) == (("", "") if version == 1 else ("2-3", "0-1"))
    assert gone.populated is (version == 2)  # v1 moves the processes to the nearest ancestor that has CPUs
    tree.online(CpuSet.of(0, 1, 2, 3))
    back = cgroups.observe().cgroups[-1]
    assert (str(back.cpus), str(back.effective_cpus)) == (("", "") if version == 1 else ("2-3", "2-3"))


@pytest.mark.parametrize("version", [1, 2])
def test_a_full_node_costs_a_few_files_for_each_cgroup(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 containers in 250 pods: none of its files is opened three times. `make bench` has the time."""
    opened: Counter[str] = Counter()
    real = os.open
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - because cgroups lie in memory too
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        setup = Layout(version=version)
        tree = Scratch.create(f"{folder}/s", cpus=CpuSet.of(0), nodes=NodeSet.of(0), setup=setup)
        for pod in range(250):
            tree.add_pod(f"uid-{pod}", list(Qos)[pod % 3])
            for container in range(2):
                tree.add_container(f"uid-{pod}", f"{pod:032x}{container:032x}", processes=0)
        cgroups = Cgroups(tree.folder)

        def count(path: str, *rest: Any, **more: Any) -> int:  # noqa: ANN401 - os.open's
            opened[str(path)] += str(path).startswith("/")  # without the folders of those
            return real(path, *rest, **more)

        monkeypatch.setattr(os, "open", count)
        assert len(cgroups.observe().cgroups) == 3 + 250 + 500
    assert max(opened.values()) <= 2, opened.most_common(3)
    assert sum(opened.values()) <= 10 * 753


def test_the_threads_of_a_cgroup_and_of_those_below_are_asked(tmp_path: Path) -> None:
    """Else `numalign verify` says nothing of a thread that keeps to fewer CPUs than its container was given."""
    here, over = threading.get_native_id(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    (tmp_path / "app" / "inner").mkdir(parents=True)
    (tmp_path / "app" / "cgroup.threads").write_text(f"{here}\n0\n{(1 << 22) + 1}\n", "ascii")
    (tmp_path / "app" / "inner" / "cgroup.threads").write_text(f"{other.native_id}\n", "ascii")
    mine = CpuSet.from_ids(os.sched_getaffinity(0))
    try:
        assert affinities(Mounts(2, str(tmp_path)), "/app") == {here: mine, other.native_id: mine}
    finally:
        over.set()
        other.join()


@pytest.mark.parametrize("more", ["/3", "/1/deep/deep/deep/deep/deep/deep/deep/deep"], ids=["many", "deep"])
def test_s13_what_was_not_looked_at_may_hold_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """v1 asks each cgroup for its processes: where some are beyond the bounds, container and pod count as living."""
    monkeypatch.setattr("agent.host.cgroups.scanning.MOST_INNER", 2 if more == "/3" else 20)
    tree = Scratch.create(tmp_path / "s", cpus=CpuSet.of(0), nodes=NodeSet.of(0), setup=Layout(version=1))
    pod = tree.add_pod(UID, G)
    path = tree.add_container(UID, ID, processes=0)
    cgroups = Cgroups(tree.folder)
    for name in ("1", "2"):
        tree._make(f"{path}/{name}")
    assert not any(each.populated for each in cgroups.observe().cgroups if each.pod_uid)
    tree._make(f"{path}{more}")
    assert {pod, path} <= {each.path for each in cgroups.observe().cgroups if each.populated}
