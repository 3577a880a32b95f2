"""numalign.io/memory-policy through the engine: what the runtime is answered, and what is told of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.app.service.memory_policies import MemoryPolicies
from agent.cli import group
from agent.core.cgroups.page_policies import MOVED, NEEDED
from agent.errors import SettingsError, SysfsMalformedError
from agent.host.device_nodes import Usable
from agent.host.nri import nri_pb2, translate
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.kube import pod_report
from agent.node.explaining import explained
from agent.node.tracked_pod import Switches
from agent.settings import parse
from agent.settings.conflicts import check_kernel
from tests.flow.serving import MACHINE as MACHINE_OF_FILES
from tests.flow.serving import write
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, 4G per node"
SETTINGS = {
    "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
}  # fmt: skip
ON: dict[str, Any] = {"nri": {"memoryPolicy": True}}
WIDE = container(cpu="2", memory="5Gi")
"""A container with CPUs on node 0 and memory on both nodes."""
RUNTIME = "containerd 2.4.2"


def node(folder: Path, machine: str = MACHINE, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A listed node on which memory is bound."""
    world = World(folder, machine=machine, settings={**SETTINGS, **settings})
    world.engine.pods_listed({"db"})
    return world


def answer(world: World, name: str = "app") -> nri_pb2.ContainerAdjustment:
    """What the runtime is answered when it creates a container of the pod."""
    decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
    decisions.start()
    pod = Sandbox(id="s", name="db", namespace="default", uid="db")
    change = NriDriver(decisions).create_container(pod, RuntimeContainer("c", "s", name))
    assert decisions.stop(PATIENCE)
    return translate.adjustment(change)


def notes(world: World) -> tuple[str, ...]:
    """What explain says of the pod beside its reasons."""
    found = explained(world.engine.snapshot, "db")
    assert found is not None
    return found.notes


@pytest.mark.parametrize(
    ("wish", "mode", "nodes"),
    [
        ("interleave", nri_pb2.MPOL_INTERLEAVE, "0-1"),
        (" interleave ", nri_pb2.MPOL_INTERLEAVE, "0-1"),
        ("preferred", nri_pb2.MPOL_PREFERRED_MANY, "0"),
        ("bind", nri_pb2.MPOL_BIND, "0-1"),
    ],
)
def test_the_runtime_is_asked_for_the_policy_over_the_nodes_of_the_memory(
    tmp_path: Path, wish: str, mode: int, nodes: str
) -> None:
    """With the same answer that binds the memory; `preferred` names the nodes of the container's own CPUs."""
    world = node(tmp_path, **ON)
    world.see(manifest("db", WIDE, memory_policy=wish))
    linux = answer(world).linux
    assert (linux.memory_policy.mode, linux.memory_policy.nodes) == (mode, nodes)
    assert linux.resources.cpu.mems == "0-1"


@pytest.mark.parametrize(
    ("settings", "body", "wish"),
    [
        ({}, WIDE, "interleave"),
        (ON, WIDE, "default"),
        (ON, WIDE, "local"),
        (ON, WIDE, "interleave,bind"),
        (ON, WIDE, f"bind{' ' * 200}"),
        (ON, container(cpu="2", memory="1Gi"), "interleave"),
        ({**ON, "memoryManagerPolicy": "None", "reservedMemory": []}, WIDE, "interleave"),
    ],
    ids=["switched off", "no such word", "another policy", "a list", "too long", "one node", "memory is not bound"],
)
def test_the_answer_is_the_same_as_without_the_annotation(
    tmp_path: Path, settings: dict[str, Any], body: dict[str, Any], wish: str
) -> None:
    """Byte for byte, where the setting is off, the value is wrong, or there are not several nodes."""
    world, bare = node(tmp_path / "a", **settings), node(tmp_path / "b", **settings)
    world.see(manifest("db", body, memory_policy=wish))
    bare.see(manifest("db", body))
    found = answer(world)
    assert not found.linux.HasField("memory_policy")
    assert found.SerializeToString(deterministic=True) == answer(bare).SerializeToString(deterministic=True)


def test_a_pod_keeps_the_policy_that_it_asked_for_when_it_was_placed(tmp_path: Path) -> None:
    """A container that starts again has the same; without the annotation, and with another one."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE, memory_policy="bind"))
    before = answer(world).linux.memory_policy
    for now in (manifest("db", WIDE), manifest("db", WIDE, memory_policy="interleave")):
        world.see(now)
        assert answer(world).linux.memory_policy == before


def test_an_update_of_a_running_container_names_no_policy(tmp_path: Path) -> None:
    """The runtime could not set it: an update has sets and the quota alone."""
    world = node(tmp_path, **ON)
    world.see(manifest("db", WIDE, memory_policy="bind"))
    decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
    pod = Sandbox(id="s", name="db", namespace="default", uid="db")
    change = NriDriver(decisions).update_container(pod, RuntimeContainer("c", "s", "app"))
    assert change == Adjustment(cpus=change.cpus, mems=change.mems, quota=-1)


def test_where_it_is_switched_off_the_pod_is_told(tmp_path: Path) -> None:
    """The Event says why, and explain does, too; the pod runs as without the annotation."""
    world = node(tmp_path)
    world.see(manifest("db", WIDE, memory_policy="bind"))
    (problem,) = world.engine.snapshot.pods["db"].settings.problems
    assert str(problem) == (
        'numalign.io/memory-policy: "bind" is switched off on this node (nri.memoryPolicy: false); the pod runs as '
        "without it"
    )
    assert not any("memory policy" in each for each in notes(world))


def test_explain_says_what_the_runtime_is_asked(tmp_path: Path) -> None:
    """One sentence for each container that gets a policy; one for a pod of which none does."""
    world = node(tmp_path, **ON)
    world.see(manifest("db", WIDE, memory_policy="interleave"))
    assert notes(world)[-1] == (
        "numalign asks the runtime for the memory policy interleave:0-1 when it creates container app "
        "(numalign.io/memory-policy); the condition numalign.io/Aligned says whether the kernel shows it"
    )
    other = node(tmp_path / "other", **ON)
    other.see(manifest("db", container(cpu="2", memory="1Gi"), memory_policy="interleave"))
    assert notes(other)[-1] == (
        "numalign.io/memory-policy is not followed: the memory of none of its containers is bound to several NUMA "
        "nodes"
    )


@contextmanager
def kernel(world: World, monkeypatch: pytest.MonkeyPatch, shown: str | Exception) -> Iterator[list[str]]:
    """The containers' processes have this policy, and started a while ago; yields the paths that are read."""
    read = list[str]()

    def policy(path: str) -> str:
        read.append(path)
        if isinstance(shown, Exception):
            raise shown
        return shown

    with monkeypatch.context() as patch:
        patch.setattr(world.cgroups, "real", True)
        patch.setattr(world.cgroups, "policy", policy)
        patch.setattr(world.cgroups, "since", lambda _path: 0.0)
        yield read


def error(code: int) -> OSError:
    """A fault of the kernel's."""
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("shown", "runtime", "told"),
    [
        ("interleave:0-1", RUNTIME, "container app has the memory policy interleave:0-1"),
        (
            "default", RUNTIME,
            f'container app is not in force: the kernel shows "default", and the runtime is {RUNTIME}; {NEEDED}',
        ),
        (
            "interleave:0", RUNTIME,
            f'policy interleave:0-1 of container app is not in force: the kernel shows "interleave:0"; {MOVED}',
        ),
        (
            "default", "",
            'is not in force: the kernel shows "default", and no runtime asks numalign by NRI;',
        ),
        (
            error(errno.EACCES), RUNTIME,
            "seen: /proc/PID/numa_maps of it cannot be read (EACCES: Permission denied): nri.readMemoryPolicies of",
        ),
        (
            error(errno.ESRCH), RUNTIME,
            "is not in force as far as can be seen: the agent sees none of its processes: nri.readMemoryPolicies of",
        ),
        (error(errno.ETIMEDOUT), RUNTIME, "cannot be read (ETIMEDOUT: Connection timed out)"),
    ],
    ids=["shown", "ignored", "other nodes", "without NRI", "forbidden", "pid namespace", "hangs"],
)  # fmt: skip
def test_it_is_told_as_in_force_only_after_the_kernel_showed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str | OSError, runtime: str, told: str
) -> None:
    """The condition has the sentence, once, and is as without it: the sets of the pod are in force either way."""
    world = node(tmp_path, **ON)
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("db", WIDE, memory_policy="interleave", created=2))
    seen = MemoryPolicies(world.cgroups)
    seen.look(world.engine, runtime)
    assert seen.note("db") == "", "what lies in a scratch tree is no process"
    before = len(world.ears.words)
    with kernel(world, monkeypatch, shown) as read:
        for _ in range(3):
            seen.look(world.engine, runtime)
    assert set(read) == {world.path("db", "app")}, "no other process is read"
    assert len(read) == 3, "once at each look"
    assert world.ears.words[before:] == ["db"]
    ledger, said = world.engine.ledger, ("", seen.note("db"))
    bare, full = (pod_report.admitted("db", ledger, world.machine, note=each) for each in said)
    assert (full.status, full.reason, full.pinned) == (bare.status, bare.reason, bare.pinned)
    assert told in full.message.removeprefix(bare.message)


@pytest.mark.parametrize(
    "fault", [error(errno.ETIMEDOUT), error(errno.ENOENT), SysfsMalformedError("cgroup.procs", "is not read"), None],
    ids=["hangs", "vanished", "no list", "looks young"],
)  # fmt: skip
def test_what_the_kernel_showed_counts_until_it_shows_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    """A change of memory nodes maps the policy, and their return does not map it back; a failed read says nothing."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE, memory_policy="interleave"))
    seen, told = MemoryPolicies(world.cgroups), list[str]()
    for shown in ("interleave:0-1", fault or "default", "interleave:0", "interleave:0-1"):
        with kernel(world, monkeypatch, shown), monkeypatch.context() as patch:
            if shown == "default":
                patch.setattr(world.cgroups, "since", lambda _path: float(2**40))
            seen.look(world.engine, RUNTIME)
        told.append(seen.note("db"))
    force = "container app has the memory policy interleave:0-1"
    moved = "the memory policy interleave:0-1 of container app is not in force"
    assert told == [force, force, f'{moved}: the kernel shows "interleave:0"; {MOVED}', force]


def test_a_container_whose_processes_are_not_listed_costs_no_other_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may make its cgroup one of threads alone, whose processes the kernel does not list."""
    world = node(tmp_path, machine="4 sockets x 1 node x 4 cores x 1 thread, 4G per node", **ON)
    for number, uid in enumerate(("bad", "db")):
        world.run(manifest(uid, WIDE, memory_policy="bind", created=number))
    seen, bad = MemoryPolicies(world.cgroups), world.path("bad", "app")
    with kernel(world, monkeypatch, "bind:2-3"), monkeypatch.context() as patch:
        good = world.cgroups.policy

        def policy(path: str) -> str:
            if path == bad:
                raise SysfsMalformedError(f"{path}/cgroup.procs", "cannot be read: Operation not supported")
            return good(path)

        patch.setattr(world.cgroups, "policy", policy)
        seen.look(world.engine, RUNTIME)
    assert seen.note("db") == "container app has the memory policy bind:2-3"
    assert seen.note("bad").endswith("not in force as far as can be seen: its cgroup does not list its processes")


def test_an_agent_that_only_observes_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked the runtime for no policy, so that none is missing."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE, memory_policy="bind"))
    seen = MemoryPolicies(world.cgroups)
    with kernel(world, monkeypatch, "default") as read:
        world.engine.changed(world.node(), Switches(observe_only=True))
        seen.look(world.engine, RUNTIME)
    assert (seen.note("db"), read) == ("", [])


def test_preferred_without_memory_near_its_cpus_is_over_all_nodes_of_the_memory(tmp_path: Path) -> None:
    """Under the policy none CPUs and memory can lie apart; a policy over no node would fail the container."""
    world = node(
        tmp_path, machine="4 sockets x 1 node x 2 cores x 1 thread, 4G per node", topologyManagerPolicy="none", **ON
    )
    world.run(manifest("big", container(cpu="5", memory="64Mi"), created=1))
    world.see(manifest("db", WIDE, memory_policy="preferred", created=2))
    linux = answer(world).linux
    assert (linux.resources.cpu.cpus, linux.resources.cpu.mems) == ("6-7", "1-2")
    assert (linux.memory_policy.mode, linux.memory_policy.nodes) == (nri_pb2.MPOL_PREFERRED_MANY, "1-2")


def test_a_container_that_just_started_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is the runtime's own at first; one whose cgroup is gone is told nothing of."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE, memory_policy="bind"))
    seen = MemoryPolicies(world.cgroups)
    for since in (None, float(2**40)):
        with kernel(world, monkeypatch, "default") as read, monkeypatch.context() as patch:
            patch.setattr(world.cgroups, "since", lambda _path, since=since: since)
            seen.look(world.engine, RUNTIME)
        assert (seen.note("db"), read) == ("", [])


def test_without_the_annotation_no_process_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the node has the feature; a pod that lost its wish loses its sentence."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE))
    seen = MemoryPolicies(world.cgroups)
    with kernel(world, monkeypatch, "default") as read, monkeypatch.context() as patch:
        patch.setattr(world.cgroups, "observe", lambda: pytest.fail("the tree is read"))
        seen.look(world.engine, RUNTIME)
    assert (seen.note("db"), read) == ("", [])


def test_a_setting_that_is_switched_off_takes_the_sentence_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container keeps its policy, which numalign does not answer for any more."""
    world = node(tmp_path, **ON)
    world.run(manifest("db", WIDE, memory_policy="bind"))
    seen = MemoryPolicies(world.cgroups)
    with kernel(world, monkeypatch, "bind:0-1"):
        seen.look(world.engine, RUNTIME)
        assert seen.note("db") == "container app has the memory policy bind:0-1"
        world.engine.changed(world.node(nri={"memoryPolicy": False}))
        seen.look(world.engine, RUNTIME)
    assert seen.note("db") == ""


@pytest.mark.parametrize(("wish", "count"), [("bind", 1), ("bound", 0), ("", 0)])
def test_a_release_says_what_stays(tmp_path: Path, wish: str, count: int) -> None:
    """A policy cannot be taken from a process; where no pod asks for one, the release says nothing of it."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2"), **({"memory_policy": wish} if wish else {}))
    options = ("--state-dir", str(tmp_path / "state"), "--root", MACHINE_OF_FILES)
    ran = CliRunner().invoke(group, ["run", *options, "--pods", str(tmp_path / "pods"), "--once"])
    assert ran.exit_code == 0, ran.output
    done = CliRunner().invoke(group, ["release", *options])
    assert done.exit_code == 0, done.output
    said = (
        "1 pod asks for a memory policy (numalign.io/memory-policy): a container that got it keeps it until it is "
        "started again, and the kernel may map it to other nodes"
    )
    assert done.output.count(said) == count
    assert done.output.count("memory policy") == count


@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "4.18.0", "", "six"])
def test_kernels_that_cannot_prefer_several_nodes_are_refused(release: str) -> None:
    """Containers would not start there; one sentence says what to set, and the default is fine."""
    with pytest.raises(SettingsError, match=r"nri\.memoryPolicy: needs Linux 5\.15 or newer"):
        check_kernel(parse(ON)[0], release)
    check_kernel(parse({})[0], release)
    for newer in ("5.15.0", "6.1.0-32-amd64"):
        check_kernel(parse(ON)[0], newer)
