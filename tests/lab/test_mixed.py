"""Own and shared CPUs in one container (numalign.io/mixed), with a real kubelet, runtime (NRI) and kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from agent.core.request.mixed import OWN_CPUS, SHARED_CPUS
from agent.host.cpu_files import DESTINATION, FILE, FOLDER
from agent.host.nri.translate import FOLDER_OPTIONS
from agent.model.idset import CpuSet
from agent.settings.conflicts import KEEPS_AFFINITIES
from tests import patience
from tests.docs.pages import DOCS, blocks
from tests.lab import agent, reading, report
from tests.lab.cluster import Lab
from tests.lab.node import Node
from tests.lab.pods import Object, container, pod, resources
from tests.lab.stage import RESERVED, Stage
from tests.lab.test_exclusive import shares, stranger

READ = f"{DESTINATION}/{FILE}"
FOLDERS = f"{agent.STATE.rpartition('/')[0]}/{FOLDER}"
"""Of the host."""
ASKS = {"numalign.io/exclusive": "auto", "numalign.io/mixed": "app"}
SIDE = container("side", resources=resources("100m", "16Mi", limits={"memory": "32Mi"}))
PINS = f"""taskset -c "${{{OWN_CPUS}%%[-,]*}}" sleep infinity &
taskset -c "${{{SHARED_CPUS}%%[-,]*}}" sleep infinity &
wait"""
"""A program that places its threads by its environment: one on its own first CPU, one on the first shared one."""
BURNS = 15
BURN = """for cpu in {own} {shared}; do
    taskset -c $cpu busybox timeout {seconds} sh -c 'while :; do :; done' &
done; wait; true"""
RESIZED = 120.0
KUBELETS_TURN = 240.0
"""Seconds in which the kubelet must have renewed a volume: it comes by every 60 to 90."""


@pytest.fixture
def stage(alone: Lab) -> Iterator[Stage]:
    """The node that numalign serves, empty before and after."""
    alone.clear(alone.numalign)
    yield Stage(alone, alone.numalign)
    alone.clear(alone.numalign)


def mixed(name: str, **more: Any) -> Object:  # noqa: ANN401 - of the container's spec
    """An app with a CPU of its own and the reserved ones beside it, in a Burstable pod."""
    return pod(name, container("app", cpu="1", memory="32Mi", **more), SIDE, annotations=ASKS)


def words(text: str) -> dict[str, str]:
    """Lines of NAME=VALUE, those that are ours."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs if name.startswith("NUMALIGN_")}


def environment(stage: Stage, name: str, part: str = "app") -> dict[str, str]:
    """Ours of a container's first program."""
    return words(stage.lab.inside(stage.node, name, part, "tr '\\0' '\\n' </proc/1/environ"))


def file(stage: Stage, name: str) -> dict[str, str]:
    """What the app reads."""
    return words(stage.lab.inside(stage.node, name, "app", f"cat {READ}"))


def in_force(stage: Stage, name: str, part: str = "app") -> CpuSet:
    """The kernel's set of a container."""
    body = stage.lab.pod(name)
    return CpuSet.parse(reading.kernel(stage.node, [body])[body["metadata"]["uid"]][part].cpus)


def started(stage: Stage, body: Object) -> tuple[Object, CpuSet]:
    """A mixed pod that runs, and the app's own CPUs: environment, file and kernel say the same of both parts."""
    name = body["metadata"]["name"]
    made = stage.lab.create(body, stage.node, wait=True)
    stage.agreed()
    told = environment(stage, name)
    own = CpuSet.parse(told[OWN_CPUS])
    assert told == {OWN_CPUS: str(own), SHARED_CPUS: str(RESERVED)}
    assert len(own) == 1
    assert in_force(stage, name) == own | RESERVED
    assert file(stage, name) == told
    return made, own


def resize(stage: Stage, name: str, part: str, cpu: str) -> None:
    """Ask for another number of CPUs in place."""
    asked = {"name": part, "resources": {each: {"cpu": cpu} for each in ("requests", "limits")}}
    stage.lab.plane.call(
        "PATCH", f"/api/v1/namespaces/default/pods/{name}/resize", {"spec": {"containers": [asked]}},
        kind="application/strategic-merge-patch+json",
    )  # fmt: skip


def number_of(node: Node, path: str) -> str:
    """The inode of a file or folder of the host."""
    return node.run(f"stat -c %i {path}").strip()


def test_environment_and_folder_tell_which_cpus_are_its_own(stage: Stage) -> None:
    """Read-only, for it alone, kept over a kill of the agent, replaced by rename with a resize, gone with the pod."""
    lab, node = stage.lab, stage.node
    made, own = started(stage, mixed("told"))
    folder = f"{FOLDERS}/{made['metadata']['uid']}"
    tried = lab.inside(node, "told", "app", f"(echo x >{READ}; echo x >{DESTINATION}/y; rm -f {READ}) 2>&1; true")
    assert tried.count("Read-only file system") == 3, tried
    mount = lab.inside(node, "told", "app", f"grep ' {DESTINATION} ' /proc/self/mountinfo").split()
    assert {*FOLDER_OPTIONS} - {"bind", "rprivate"} <= {*mount[5].split(",")}, mount
    assert environment(stage, "told", "side") == {}
    assert lab.inside(node, "told", "side", "ls /run/numalign 2>&1; true").count("No such file") == 1
    kept = number_of(node, f"{folder}/app")
    stage.killed()
    stage.agreed()
    assert (number_of(node, f"{folder}/app"), file(stage, "told")) == (kept, environment(stage, "told"))
    before = number_of(node, f"{folder}/app/{FILE}")
    resize(stage, "told", "app", "2")
    patience.until(lambda: len(CpuSet.parse(file(stage, "told")[OWN_CPUS])) == 2, "two CPUs in the file",
                   within=RESIZED)  # fmt: skip
    now = CpuSet.parse(file(stage, "told")[OWN_CPUS])
    assert in_force(stage, "told") == now | RESERVED, "it is told once the kernel has it"
    assert own.issubset(now)
    assert number_of(node, f"{folder}/app/{FILE}") != before
    assert CpuSet.parse(environment(stage, "told")[OWN_CPUS]) == own, "the environment is that of the start"
    lab.delete("told")
    lab.wait_gone(made)
    patience.until(lambda: node.guest.execute(f"test -e {folder}")[0] != 0, f"{folder} gone")


def identity(stage: Stage, name: str) -> str:
    """The runtime's number of a pod's app."""
    statuses = stage.lab.pod(name)["status"]["containerStatuses"]
    return next(str(each["containerID"]).rpartition("/")[2] for each in statuses if each["name"] == "app")


def threads(stage: Stage, name: str) -> dict[int, CpuSet]:
    """Thread -> the CPUs that it may use, of a pod's app."""
    number = identity(stage, name)
    (found,) = (each for each in stage.look().containers if each.id == number)
    return dict(found.threads)


def test_s6_a_thread_keeps_its_affinity_while_others_come_and_go(stage: Stage) -> None:
    """S6: the pool changes, a mixed set and who pinned himself in it do not, before 6.2 too. S16: it has no quota."""
    lab, node = stage.lab, stage.node
    _, own = started(stage, mixed("pins", command=["/bin/sh", "-c", PINS]))
    placed = {own, CpuSet.of(RESERVED.first)}
    patience.until(lambda: placed <= {*threads(stage, "pins").values()}, f"threads pinned to {placed}")
    before = threads(stage, "pins")
    pools = {reading.shared(node)}
    others = [pod(f"other-{number}", cpu="2", memory="16Mi") for number in range(2)] + [stranger("other-2")]
    there = list[Object]()
    for body in others:
        there.append(lab.create(body, node, wait=True))
        stage.agreed()
        pools.add(reading.shared(node))
        assert threads(stage, "pins") == before
    for body in others:
        lab.delete(body["metadata"]["name"])
    lab.wait_gone(*there)
    stage.agreed()
    assert len(pools) == 3, "the pool changed with each of the two"
    assert (in_force(stage, "pins"), threads(stage, "pins")) == (own | RESERVED, before)
    _burns(stage, own)
    release = node.run("uname -r").strip()
    report.record(
        "a mixed container's pinned threads kept their affinities while the pool changed", f"Linux {release}"
    )


def _burns(stage: Stage, own: CpuSet) -> None:
    """A thread on its own CPU and one on a shared one use all that they can: the limit throttles neither."""
    node = stage.node
    mine = f"-name '*{identity(stage, 'pins')}*' ! -name 'crio-conmon-*'"  # CRI-O's monitor lies beside its container
    folder = node.run(f"find /sys/fs/cgroup/kubepods* -type d {mine}").strip()
    before = shares(node, folder)["usage_usec"]
    stage.lab.inside(node, "pins", "app", BURN.format(own=own.first, shared=RESERVED.first, seconds=BURNS))
    after = shares(node, folder)
    used = (after["usage_usec"] - before) / 1e6 / BURNS
    assert after.get("nr_throttled", 0) == 0
    assert node.run(f"cat {folder}/cpu.max").split()[0] == "max"
    assert used > 1.2, f"with a limit of 1 CPU, its own and a shared one burning, it used {used:.2f}"
    report.record("a mixed container with a limit of one CPU used, its own and a shared one burning", f"{used:.2f}")


def test_s6_the_pool_is_shared_only_where_a_write_keeps_affinities(stage: Stage) -> None:
    """S6: before Linux 6.2 `pool` is refused; from then on the container follows the pool, and its threads stay."""
    release = stage.node.run("uname -r").strip()
    first, second = re.findall(r"\d+", release)[:2]
    try:
        if (int(first), int(second)) < KEEPS_AFFINITIES:
            _refused(stage, release)
        else:
            _follows(stage, release)
    finally:
        agent.configure(stage.node, {})
    agent.wait_ready(stage.node)


def _refused(stage: Stage, release: str) -> None:
    """One sentence says why and what to set, and the settings of before hold."""
    since = stage.now()
    agent.configure(stage.node, {"mixedSharedCPUs": "pool"})
    line = stage.said("the old settings stay: .*mixedSharedCPUs", since)
    assert f"pool needs Linux 6.2 or newer, and this is {release}" in line
    assert "set mixedSharedCPUs to reserved" in line
    started(stage, mixed("as-before"))


def _follows(stage: Stage, release: str) -> None:
    """A pod with CPUs of its own comes and goes: the set changes twice, the threads that chose a CPU stay on it."""
    lab, node = stage.lab, stage.node
    agent.configure(node, {"mixedSharedCPUs": "pool"})
    lab.create(mixed("pins", command=["/bin/sh", "-c", PINS]), node, wait=True)
    stage.agreed()
    at_first, told = CpuSet.parse(reading.shared(node)), environment(stage, "pins")
    own = CpuSet.parse(told[OWN_CPUS])
    assert told[SHARED_CPUS] == str(at_first)
    assert in_force(stage, "pins") == own | at_first
    placed = {CpuSet.of(own.first), CpuSet.of(at_first.first)}

    def pinned() -> dict[int, CpuSet]:
        return {number: cpus for number, cpus in threads(stage, "pins").items() if cpus in placed}

    patience.until(lambda: {*pinned().values()} == placed, f"threads pinned to {placed}")
    before = pinned()
    other = lab.create(pod("other", cpu="2", memory="16Mi"), node, wait=True)
    stage.agreed()
    smaller = CpuSet.parse(reading.shared(node))
    assert len(at_first - smaller) == 2
    assert (in_force(stage, "pins"), pinned()) == (own | smaller, before)
    lab.delete("other")
    lab.wait_gone(other)
    stage.agreed()
    assert (in_force(stage, "pins"), pinned()) == (own | at_first, before)
    report.record("a container that shares the pool followed it, and its pinned threads stayed", f"Linux {release}")


RECIPE: dict[str, Any] = next(
    each["spec"] for each in map(yaml.safe_load, blocks(DOCS / "my-cpus.md", "yaml")) if "volumes" in each["spec"]
)
"""The page's own, for who has no NRI."""
(NAMED,) = RECIPE["containers"]
(PROJECTED,) = RECIPE["volumes"]
TOLD = f"{NAMED['volumeMounts'][0]['mountPath']}/{PROJECTED['downwardAPI']['items'][0]['path']}"
WAITS = f": >/tmp/begun; until test -s {TOLD}; do sleep 0.2; done; : >/tmp/told; exec sleep infinity"


@pytest.fixture
def without_nri(stage: Stage) -> Iterator[Stage]:
    """The agent leaves the runtime alone."""
    since = stage.now()
    agent.configure(stage.node, {"enforcement": "cgroup"})
    stage.said("NRI is left", since)
    yield stage
    stage.lab.clear(stage.node)
    since = stage.now()
    agent.configure(stage.node, {})
    stage.said("NRI: connected", since)


def test_without_nri_the_downward_api_tells_and_how_late(without_nri: Stage) -> None:
    """Neither environment nor folder; the page's recipe has both parts after its start and after a resize."""
    stage, name = without_nri, NAMED["name"]
    lab, node = stage.lab, stage.node
    body = pod(
        "recipe", container(name, cpu="1", memory="32Mi", command=["/bin/sh", "-c", WAITS],
                            volumeMounts=NAMED["volumeMounts"]),
        annotations={"numalign.io/mixed": name}, volumes=RECIPE["volumes"],
    )  # fmt: skip
    made = lab.create(body, node, wait=True)
    uid = made["metadata"]["uid"]
    pid = node.run(f"sort -n {stage.folder('recipe')}/cgroup.procs | head -n 1").strip()
    seen = f"/proc/{pid}/root/tmp"
    patience.until(lambda: node.guest.execute(f"test -e {seen}/told")[0] == 0, f"{TOLD} filled", within=KUBELETS_TURN)
    began, filled = map(float, node.run(f"stat -c %.Y {seen}/begun {seen}/told").split())
    stage.agreed()

    def says() -> dict[str, str]:
        told: dict[str, str] = json.loads(lab.inside(node, "recipe", name, f"cat {TOLD}"))["containers"][name]
        return told

    assert CpuSet.parse(says()["sharedCpus"]) == RESERVED
    assert CpuSet.parse(says()["cpus"]) | RESERVED == in_force(stage, "recipe", name)
    assert environment(stage, "recipe", name) == {}
    assert node.guest.execute(f"test -e {FOLDERS}/{uid}")[0] != 0
    asked = float(node.run("date +%s.%N"))
    resize(stage, "recipe", name, "2")
    patience.until(lambda: len(CpuSet.parse(says()["cpus"])) == 2, "two CPUs in it", within=KUBELETS_TURN)
    volume = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~downward-api/{PROJECTED['name']}"
    renewed = float(node.run(f"stat -c %.Y {volume}/..data"))
    assert CpuSet.parse(says()["cpus"]) | RESERVED == in_force(stage, "recipe", name)
    report.record(
        "downward API without NRI: seconds from the start to its CPUs; from asking for a resize to the new ones",
        f"{filled - began:.1f}; {renewed - asked:.1f}",
    )
