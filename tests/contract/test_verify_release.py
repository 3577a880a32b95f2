"""`numalign verify` and `numalign release`, as a user runs them, on scratch trees and on the real hierarchy."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import group
from agent.core.cgroups.desired import desired_sets
from agent.core.cgroups.plan import plan
from agent.core.cgroups.release import quota_plan
from agent.errors import AnotherAgentError, HostError, SettingsError
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.model.cgroup import Written
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import CpuRules, MemoryRules, Rules
from tests import patience
from tests.contract.trees import Tree, empties, write

UID = "0f5c1a2e-0000-4000-8000-000000000001"
APP, SANDBOX, WEB = "a" * 64, "b" * 64, "c" * 64
NAMES = {APP: (UID, "app"), WEB: ("web", "web")}
MACHINE = Machine(cpus=(Cpu(0, 0, 0, 0, 0), Cpu(1, 0, 1, 0, 0)), nodes=(NumaNode(0, CpuSet.of(0, 1), 1 << 30),))
RULES = Rules(cpu=CpuRules(static=True), memory=MemoryRules(static=False))
POD = Pod(UID, "app", "ns", (Container("app", requests={"cpu": 1000}, limits={"cpu": 1000}),), Qos.GUARANTEED)
LEDGER = Ledger(
    MACHINE.digest, CpuBooks(CpuSet.of(0), assigned={UID: {"app": CpuSet.of(1)}}),
    pods={UID: PodRecord(POD, "none", "container")},
)  # fmt: skip


@dataclass
class Site:
    """A node with an agent's remains: its tree, its state folder, and the kubelet's log folder."""

    tree: Tree
    folder: Path
    pids: dict[str, int]

    @property
    def quota(self) -> str:
        return "cpu.cfs_quota_us" if self.tree.version == 1 else "cpu.max"

    def enforce(self) -> tuple[Written, ...]:
        """What an agent does: save, write sets, lift quotas."""
        Checkpoint(self.folder / "state" / "checkpoint.json").save(LEDGER)
        cgroups = Cgroups(self.tree.root, kernel=self.tree.kernel, kubepods=f"{self.tree.base}/kubepods")
        found = cgroups.observe()
        done = cgroups.apply(plan(found, desired_sets(LEDGER, NAMES, found, RULES, MACHINE)))
        return done + cgroups.apply(quota_plan(LEDGER, NAMES, found, lift=True))

    def run(self, *arguments: str) -> Result:
        """One command line; faults come back as exceptions of ours."""
        options = [
            "--state-dir", str(self.folder / "state"), "--cgroup-root", self.tree.root,
            "--kubepods", f"{self.tree.base}/kubepods", "--log-dir", str(self.folder / "log"),
            "--root", "synthetic:1 sockets x 1 nodes x 2 cores, 1G per node",
        ]  # fmt: skip
        return CliRunner().invoke(group, [arguments[0], *options, *arguments[1:]])

    def verify(self, code: int) -> dict[str, Any]:
        """The JSON of `verify`, which ended with this code."""
        result = self.run("verify", "--output", "json")
        assert result.exit_code == code, (result.output, result.exception)
        found = json.loads(result.stdout)
        assert isinstance(found, dict)
        return found

    def at(self, container: str) -> str:
        """The path of a container."""
        pod = "/kubepods/burstable/podweb" if container == WEB else f"/kubepods/pod{UID}"
        return f"{self.tree.base}{pod}/{container}"


@pytest.fixture
def site(tree: Tree, tmp_path: Path) -> Iterator[Site]:
    """A pinned pod (app, sandbox) and a Burstable one, enforced and saved; quotas as the kubelet writes them."""
    pids = {}
    pods = {f"/kubepods/pod{UID}": (APP, SANDBOX), "/kubepods/burstable/podweb": (WEB,)}

    def make(path: str) -> str:
        full = tree.make(path)
        if tree.version == 1:
            assert write(tree, full, "cpuset.cpus", "0-1") == write(tree, full, "cpuset.mems", "0") == "ok"
        return full

    for path in ("/kubepods", "/kubepods/burstable", *pods):
        make(path)
    for pod, containers in pods.items():
        for container in containers:
            full = make(f"{pod}/{container}")
            pids[container] = tree.spawn()
            assert write(tree, full, "cgroup.procs", str(pids[container])) == "ok"
    made = Site(tree, tmp_path, pids)
    limit = "100000" if tree.version == 1 else "100000 100000"
    for path in (f"{tree.base}/kubepods/pod{UID}", made.at(APP)):
        assert write(tree, path, made.quota, limit) == "ok"
    for name, uid, container, number in (("app", UID, "app", APP), ("web", "web", "web", WEB)):
        logs = tmp_path / "log" / "pods" / f"ns_{name}_{uid}" / container
        logs.mkdir(parents=True)
        (logs / "0.log").touch()
        links = tmp_path / "log" / "containers"
        links.mkdir(exist_ok=True)
        (links / f"{name}_ns_{container}-{number}.log").symlink_to(logs / "0.log")
    assert {each.error for each in made.enforce()} == {""}
    yield made
    for pid in pids.values():
        tree.end(pid)


def snapshot(tree: Tree) -> dict[str, tuple[str, int]]:
    """Every set below the base, and when its file was changed."""
    cgroups = Cgroups(tree.root, kernel=tree.kernel, kubepods=f"{tree.base}/kubepods")
    return {
        each.path: (
            f"{each.cpus} {each.mems} {each.quota}",
            Path(cgroups.mounts.cpuset + each.path, "cpuset.cpus").stat().st_mtime_ns,
        )
        for each in cgroups.observe().cgroups
    }


def test_a_tree_in_order_is_told_as_such_and_nothing_is_written(site: Site) -> None:
    """Exit code 0, every cgroup listed with what it has, and not one file touched."""
    before = snapshot(site.tree)
    found = site.verify(0)
    assert found["ok"]
    assert found["drift"] == {}
    by_path = {(each["path"], each["file"]): each for each in found["cgroups"]}
    app = by_path[site.at(APP), "cpuset.cpus"]
    assert (app["pod"], app["container"], app["wanted"], app["asked"], app["effective"], app["exclusive"]) == (
        "ns/app", "app", "1", "1", "1", True
    )  # fmt: skip
    assert (app["cause"], app["kept"]) == ("", ""), "nothing is wrong with it that would stay"
    assert by_path[site.at(SANDBOX), "cpuset.cpus"]["wanted"] == "0"
    assert found["unnamed"] == [SANDBOX]
    assert snapshot(site.tree) == before


def test_what_others_wrote_is_told_by_cause(site: Site) -> None:
    """A foreign set and a quota that came back: exit code 1, each with cause, in the table too; nothing repaired."""
    assert write(site.tree, f"{site.tree.base}/kubepods/pod{UID}", "cpuset.cpus", "0-1") == "ok"
    assert write(site.tree, site.at(SANDBOX), "cpuset.cpus", "1") == "ok"
    assert write(site.tree, site.at(APP), site.quota, "50000" if site.tree.version == 1 else "50000 100000") == "ok"
    found = site.verify(1)
    assert found["drift"] == {"drift-foreign": 1, "quota": 1}
    paths = [each["path"] for each in found["cgroups"]]
    assert paths == sorted(paths, key=paths.index), "what is said of one cgroup stands together"
    wrong = {each["path"]: each for each in found["cgroups"] if each["cause"]}
    assert (wrong[site.at(SANDBOX)]["wanted"], wrong[site.at(SANDBOX)]["asked"]) == ("0", "1")
    table = site.run("verify", "--drift-only")
    assert table.exit_code == 1
    assert "drift-foreign" in table.stdout
    assert "1 quota" in table.stdout
    assert "podweb" not in table.stdout
    assert site.tree.read(site.at(SANDBOX), "cpuset.cpus") == "1"


def test_what_systemd_or_the_runtime_put_back_is_told_as_a_reset(site: Site) -> None:
    """The parent's whole set in a container is what a daemon-reload leaves behind: drift-reset."""
    assert write(site.tree, site.at(APP), "cpuset.cpus", "0-1") == "ok"
    assert site.verify(1)["drift"] == {"drift-reset": 1}


def test_what_a_parent_lacks_is_told_as_such(site: Site) -> None:
    """The pod's own set shrunk by another hand: on v2 its containers lose what they ask for, and both are told."""
    pod = f"{site.tree.base}/kubepods/pod{UID}"
    if site.tree.version == 1:
        assert write(site.tree, pod, "cpuset.cpus", "0") == "EBUSY"  # v1 protects the children
        assert write(site.tree, site.at(APP), "cpuset.cpus", "0") == "ok"
        assert write(site.tree, pod, "cpuset.cpus", "0") == "ok"
    else:
        assert write(site.tree, pod, "cpuset.cpus", "0") == "ok"
    found = site.verify(1)
    causes = {each["path"]: each["cause"] for each in found["cgroups"] if each["cause"]}
    assert set(causes) == {pod, site.at(APP)}
    assert causes[site.at(APP)] in {"drift-parent", "drift-foreign", "drift-reset"}
    if site.tree.version != 1:
        assert causes[site.at(APP)] == "drift-parent"


def test_s15_a_threads_own_affinity_is_told_and_is_no_drift(site: Site) -> None:
    """A thread with fewer CPUs than its container has is named, with what it may be; nothing is put right."""
    if site.tree.root != "/sys/fs/cgroup":
        pytest.skip("the processes of a scratch tree are numbers, not processes")
    release = site.run("release", "--output", "json")
    assert release.exit_code == 0, release.output
    wide = LEDGER.cpus.__class__(CpuSet.of(0, 1))
    Checkpoint(site.folder / "state" / "checkpoint.json").save(Ledger(MACHINE.digest, wide, pods=LEDGER.pods))
    os.sched_setaffinity(site.pids[WEB], {1})
    found = site.verify(0)
    mine = [each for each in found["threads"] if each["path"] == site.at(WEB)]
    assert mine == [
        {
            "path": site.at(WEB), "pod": "", "container": "web", "thread": site.pids[WEB], "cpus": "1", "of": "0-1",
            "inherited": False,
        }
    ]  # fmt: skip
    assert "its own affair" in site.run("verify").stdout
    for thread in Path("/proc", str(site.pids[WEB]), "task").iterdir():
        os.sched_setaffinity(int(thread.name), {1})
    said = " ".join(site.run("verify").stdout.split())
    assert "all threads of web may use CPUs 1 of 0-1 only" in said
    assert "inherited from the runtime (CPUAffinity= of its unit?)" in said
    assert "its own affair" not in said
    cgroups = Cgroups(site.tree.root, kubepods=f"{site.tree.base}/kubepods")
    everywhere = Ledger(MACHINE.digest, wide, pods=LEDGER.pods)
    assert plan(cgroups.observe(), desired_sets(everywhere, NAMES, cgroups.observe(), RULES, MACHINE)) == ()
    assert os.sched_getaffinity(site.pids[WEB]) == {1}


def test_s17_release_leaves_nobody_confined_and_says_what_remains(site: Site) -> None:
    """All sets as wide as kubepods, quotas as the limits say; what v2 before Linux 7.0 does not empty is named."""
    result = site.run("release", "--output", "json")
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert found["clean"]
    assert not any(each["confines"] for each in found["remains"])
    cgroups = Cgroups(site.tree.root, kernel=site.tree.kernel, kubepods=f"{site.tree.base}/kubepods")
    observed = cgroups.observe()
    assert {str(each.effective_cpus) for each in observed.cgroups} == {"0-1"}
    quotas = {each.path: each.quota.split()[0] for each in observed.cgroups if each.container_id == APP}
    assert quotas == {site.at(APP): "100000"}
    if site.tree.version == 1 or empties(site.tree):
        assert found["remains"] == []
    else:
        assert {each["why"] for each in found["remains"]} == {
            "set to all CPUs and NUMA nodes: the kernel does not let it be empty while processes run"
        }
    again = site.run("release")
    assert again.exit_code == 0
    assert "no pod is confined any more" in again.stdout
    assert (site.folder / "state" / "checkpoint.json").is_file()


def test_s17_an_empty_tree_is_emptied(site: Site) -> None:
    """Where no process lives any more the kernel lets the sets go, and nothing remains at all."""
    for pid in list(site.pids.values()):
        site.tree.end(pid)
    site.pids.clear()
    cgroups = Cgroups(site.tree.root, kernel=site.tree.kernel, kubepods=f"{site.tree.base}/kubepods")
    patience.until(lambda: not any(each.populated for each in cgroups.observe().cgroups), "no process")
    result = site.run("release", "--output", "json", "--forget")
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert found["remains"] == []
    assert found["forgotten"]
    assert not (site.folder / "state" / "checkpoint.json").exists()


def test_release_refuses_while_an_agent_runs(site: Site) -> None:
    """The lock's holder is named with its pid, nothing is written; --force goes on all the same."""
    agent = Checkpoint(site.folder / "state" / "checkpoint.json")
    agent.lock()
    try:
        result = site.run("release")
        assert isinstance(result.exception, AnotherAgentError)
        assert f"held by process {os.getpid()}" in str(result.exception)
        assert "--force" in str(result.exception)
        assert site.tree.read(site.at(APP), "cpuset.cpus") == "1"
        assert site.run("release", "--force").exit_code == 0
        assert site.tree.read(site.at(APP), "cpuset.cpus") != "1"
    finally:
        agent.unlock()


def test_release_works_without_a_ledger(site: Site) -> None:
    """A damaged checkpoint: sets are widened all the same, and it is said that quotas are not put back."""
    path = site.folder / "state" / "checkpoint.json"
    path.write_bytes(path.read_bytes()[:-20])
    result = site.run("release")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "quotas are not put back" in result.stdout
    assert re.search(r"^[1-9]\d* writes to [1-9]\d* cgroups$", result.stdout, re.MULTILINE), (
        "and none ended meanwhile"
    )
    assert path.is_file()  # putting it aside is the agent's business
    cgroups = Cgroups(site.tree.root, kernel=site.tree.kernel, kubepods=f"{site.tree.base}/kubepods")
    assert {str(each.effective_cpus) for each in cgroups.observe().cgroups} == {"0-1"}


def test_verify_without_a_ledger_says_so(site: Site) -> None:
    """Nothing was saved: a sentence that names the folder, as a fault and not as order."""
    (site.folder / "state" / "checkpoint.json").unlink()
    result = site.run("verify")
    assert isinstance(result.exception, HostError)
    assert "no agent has saved anything" in str(result.exception)


@pytest.mark.parametrize("command", ["verify", "release"])
def test_a_cgroup_that_is_not_there_is_wrong_input(site: Site, command: str) -> None:
    """A --kubepods that names nothing writes nothing, and nobody hears that all is well: exit code 2 at the top."""
    before = snapshot(site.tree)
    result = site.run(command, "--kubepods", f"{site.tree.base}/nope")
    assert isinstance(result.exception, SettingsError)
    assert str(result.exception).startswith(f"--kubepods: no cgroup {site.tree.base}/nope below ")
    assert "confined" not in result.output
    assert snapshot(site.tree) == before


@pytest.mark.parametrize("command", ["verify", "release"])
def test_a_tree_without_a_kubelets_cgroups_is_no_success(tmp_path: Path, command: str) -> None:
    """No kubepods in the tree at all: a fault that names the tree, exit code 3 at the top."""
    (tmp_path / "pods").mkdir()
    common = ["--state-dir", str(tmp_path / "state"), "--root", "two-sockets"]
    CliRunner().invoke(group, ["run", "--once", "--pods", str(tmp_path / "pods"), *common])
    for folder in [*(tmp_path / "state" / "cgroup").rglob("kubepods.slice")]:
        shutil.rmtree(folder)
    result = CliRunner().invoke(group, [command, *common])
    assert isinstance(result.exception, HostError), result.output
    assert "no kubepods cgroup was found there" in str(result.exception)
    assert "confined" not in result.output


@pytest.mark.parametrize("command", ["verify", "release"])
def test_a_wrong_machine_is_wrong_input(tmp_path: Path, command: str) -> None:
    """A --root that names nothing is the user's error, with the option's name: exit code 2 at the top."""
    result = CliRunner().invoke(group, [command, "--state-dir", str(tmp_path), "--root", str(tmp_path / "none")])
    assert isinstance(result.exception, SettingsError)
    assert str(result.exception).startswith("--root: ")
