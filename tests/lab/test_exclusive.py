"""Burstable pods with CPUs of their own (numalign.io/exclusive), with a real kubelet, runtime and kernel."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from agent.model.idset import CpuSet
from tests import patience
from tests.cluster.control_plane import ApiError
from tests.lab import agent, reading, report
from tests.lab.cluster import Lab
from tests.lab.node import Node, containerd_config
from tests.lab.pods import Object, container, pod, resources
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage
from tests.lab.sweeps import APP
from tests.world.sidecars import KUBELET_PINS, SIDECARS, Sidecar, beside

SPACE = "sidecars"
ASKS = {"numalign.io/exclusive": "auto"}
PODS, KILLS = (200, 20) if os.environ.get("NUMALIGN_LAB_LONG") else (16, 3)
"""Of one run; NUMALIGN_LAB_LONG=1 asks for all, which takes more than an hour."""
AT_ONCE = 4
SHORTLY = 2.0
"""Seconds that a pod may stand there which came between the start's look at the cgroups and its first write."""
TOLD, PAUSE = "started while no agent ran", "the pause process of"
BURN = ["/bin/sh", "-c", "while :; do :; done"]
REQUIRED = """
[plugins."io.containerd.nri.v1.nri".default_validator]
  enable = true
  required_plugins = ["numalign"]
  tolerate_missing_plugins_annotation = "numalign.io/tolerate-missing-plugin"
"""
SMALL = resources("100m", "16Mi", limits={"cpu": "500m", "memory": "32Mi"})
SIDE = container("side", command=BURN, resources=SMALL)
IDLE = container("side", resources=SMALL)


@pytest.fixture
def stage(alone: Lab) -> Iterator[Stage]:
    """The node that numalign serves, empty, with its own settings again afterwards."""
    alone.clear(alone.numalign)
    yield Stage(alone, alone.numalign)
    alone.clear(alone.numalign)
    agent.configure(alone.numalign, {})


@pytest.fixture
def space(clean: Lab) -> Lab:
    """A namespace that asks for its pods; it stays."""
    body = {"metadata": {"name": SPACE, "annotations": ASKS}}
    try:
        clean.plane.call("POST", "/api/v1/namespaces", body)
    except ApiError as error:
        if error.status != 409:
            raise
    return clean


def shaped(shape: Sidecar, node: Node) -> Object:
    """A pod of this shape, with the lab's image; init containers end."""
    spec: dict[str, Any] = beside(shape, cpus="2", memory="32Mi")
    for each in (*spec["initContainers"], *spec["containers"]):
        del each["image"]
    for each in spec["initContainers"]:
        if each.get("restartPolicy") != "Always":
            each["command"] = ["/bin/sleep", "1"]
    return {"metadata": {"name": f"{shape.name}-{node.name}", "namespace": SPACE}, "spec": spec}


def own(node: Node, uid: str) -> str:
    """The CPUs that the node's keeper gave to the app."""
    found = reading.books(node).get(uid, {}).get("app")
    return found.cpus if found else ""


def in_force(node: Node, made: Object) -> dict[str, str]:
    """Container -> the CPUs that it may use, once the app has exactly its own."""
    uid = made["metadata"]["uid"]

    def there() -> bool:
        return bool(own(node, uid)) and reading.kernel(node, [made])[uid]["app"].cpus == own(node, uid)

    patience.until(there, f"CPUs of the app of {made['metadata']['name']}, in books and kernel")
    return {name: sets.cpus for name, sets in reading.kernel(node, [made])[uid].items()}


@pytest.mark.parametrize("shape", SIDECARS, ids=lambda each: each.name)
def test_an_app_is_pinned_beside_each_sidecar(space: Lab, shape: Sidecar) -> None:
    """One annotation of the namespace: numalign pins the app, in the kernel; the kubelet only in a Guaranteed pod."""
    for node in (space.numalign, space.shadow):
        made = space.create(shaped(shape, node), node, wait=True)
        try:
            if node is space.numalign or shape.name in KUBELET_PINS:
                cpus = in_force(node, made)
                mine = CpuSet.parse(cpus.pop("app"))
                assert len(mine) == 2
                assert all(mine.isdisjoint(CpuSet.parse(each)) for each in cpus.values()), cpus
            else:
                assert own(node, made["metadata"]["uid"]) == ""
        finally:
            space.delete(made["metadata"]["name"], SPACE)
            space.wait_gone(made)


def burstable(name: str, cpu: str = "2", side: Object = SIDE) -> Object:
    """An app with CPUs of its own, and a sidecar that burns all that it may."""
    return pod(name, container("app", cpu=cpu, memory="32Mi"), side, annotations=ASKS)


def stranger(name: str) -> Object:
    """A Burstable pod that shares."""
    return pod(name, container(resources=resources("100m", "16Mi", limits={"memory": "32Mi"})))


KINDS = (
    lambda name: burstable(name, "1", IDLE), stranger, lambda name: pod(name, cpu="1", memory="32Mi"),
    lambda name: burstable(name, "2", IDLE), lambda name: pod(name, container(resources={})),
)  # fmt: skip
"""Who churns is idle: a sweep reads what threads may use. One that burns slows an emulated node."""


@pytest.mark.timeout(7200)
def test_nobody_is_on_granted_cpus_while_pods_churn(stage: Stage, sampler: Sampler) -> None:
    """Pods of every kind come and go; the sampler sees no thread of another on a granted CPU (it fails the test)."""
    lab, node, alive = stage.lab, stage.node, list[Object]()
    for number in range(0, PODS, AT_ONCE):
        names = [f"churn-{each}" for each in range(number, number + AT_ONCE)]
        made = [lab.create(KINDS[at % len(KINDS)](name), node) for at, name in enumerate(names, number)]
        for name in names:
            lab.wait_running(name)
        for each in alive:
            lab.delete(each["metadata"]["name"])
        lab.wait_gone(*alive)
        alive = made
    stage.agreed()
    assert sampler.seen().count > PODS
    report.record("pods of every kind that came and went beside Burstable grants", PODS)


def shares(node: Node, folder: str) -> dict[str, int]:
    """The numbers of a cgroup's cpu.stat."""
    lines = node.run(f"cat {folder}/cpu.stat").splitlines()
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}


def test_s16_the_sidecar_keeps_its_quota_and_the_app_has_none(stage: Stage) -> None:
    """A sidecar with 500m that burns gets half a CPU, also after a daemon-reload; the app is never throttled."""
    lab, node = stage.lab, stage.node
    made = lab.create(burstable("quota"), node, wait=True)
    lab.wait_enforced(node, "quota")
    statuses = lab.pod("quota")["status"]["containerStatuses"]
    numbers = {each["name"]: each["containerID"].rpartition("/")[2] for each in statuses}
    app, side = (
        node.run(f"find /sys/fs/cgroup/kubepods.slice -type d -name '*{numbers[name]}*'").strip()
        for name in ("app", "side")
    )
    for _ in range(2):
        before, began = shares(node, side), time.monotonic()
        node.run("sleep 20")
        used = (shares(node, side)["usage_usec"] - before["usage_usec"]) / 1e6 / (time.monotonic() - began)
        assert used < 0.6, f"the sidecar used {used:.2f} CPUs of its 0.5"
        assert node.run(f"cat {side}/cpu.max").split()[0] == "50000"
        assert node.run(f"cat {app}/cpu.max").split()[0] == "max"
        assert shares(node, app).get("nr_throttled", 0) == 0
        node.run("systemctl daemon-reload")
        lab.wait_enforced(node, "quota")
    lab.delete("quota")
    lab.wait_gone(made)


@dataclass(frozen=True)
class Away:
    """What was seen of Burstable pods that started after kills of the agent.

    Attributes:
        names: uid -> name of each.
        seconds: uid -> how long its program might run on CPUs of the Burstable grant, of those that did at all.
        words: what the agent said of them, one line each.
    """

    names: Mapping[str, str]
    seconds: Mapping[str, float]
    words: str


def started_while_away(stage: Stage, sampler: Sampler) -> Away:
    """Kill the agent again and again, start a Burstable pod each time, and look who was where."""
    lab, node = stage.lab, stage.node
    mine = lab.create(burstable("mine"), node, wait=True)
    guaranteed = lab.create(pod("guaranteed", cpu="2", memory="32Mi"), node, wait=True)
    lab.wait_enforced(node, "mine", "guaranteed")
    before, since = stage.agreed(), stage.now()
    own, others = (stage.held(each["metadata"]["name"], before) for each in (mine, guaranteed))
    names, words = dict[str, str](), dict[str, None]()
    for number in range(KILLS):
        killed = stage.kill()
        made = lab.create(stranger(f"stranger-{number}"), node)
        names[made["metadata"]["uid"]] = made["metadata"]["name"]
        stage.said("recovered", after=killed)
        lab.wait_running(made["metadata"]["name"])
        stage.unmoved(before, stage.agreed())
        # at each start: the kubelet keeps the logs of two containers, and removes the others
        words |= dict.fromkeys(line for line in stage.words(2000, since) if TOLD in line and PAUSE not in line)
    seen, sweeps = sampler.seen(), Counter[str]()
    for span in seen.spans:
        for each in span.sets.values():
            if each.kind == APP and each.pod in names:
                assert each.cpus.isdisjoint(others), "a Guaranteed pod's CPUs are in no slice"
                sweeps[each.pod] += (span.end - span.first) if each.cpus & own else 0
    seconds = {uid: count * seen.seconds / max(1, seen.count) for uid, count in sweeps.items() if count}
    return Away(names, seconds, "\n".join(words))


@pytest.mark.timeout(7200)
def test_who_starts_while_the_agent_is_away_is_named_and_put_right(stage: Stage, sampler: Sampler) -> None:
    """After each kill a Burstable pod starts: if it stood on a grant, the next start says so; then nobody does."""
    sampler.excused = "Burstable pods start while no agent runs"
    found = started_while_away(stage, sampler)
    long = {uid for uid, seconds in found.seconds.items() if seconds > SHORTLY}
    unsaid = [name for uid, name in found.names.items() if uid in long and uid not in found.words]
    assert [name for name in unsaid if name not in found.words] == [], found.words
    report.record(
        "Burstable pods that started while no agent ran; of them on another's CPUs, all named beyond 2 s",
        f"{len(found.names)}; {len(found.seconds)}, for {max(found.seconds.values(), default=0.0):.0f} s at most",
    )


@pytest.fixture
def required(stage: Stage) -> Iterator[Stage]:
    """The runtime starts no container without numalign, but those that say so (deploy/docs/nri.md)."""
    node, since = stage.node, stage.now()
    node.put("/etc/containerd/config.toml", containerd_config(node.plan) + REQUIRED)
    node.restart("containerd")
    stage.said("NRI: connected", since)
    yield stage
    node.put("/etc/containerd/config.toml", containerd_config(node.plan))
    since = stage.now()
    node.restart("containerd")
    stage.said("NRI: connected", since)


@pytest.mark.timeout(7200)
def test_with_required_plugins_nobody_starts_while_the_agent_is_away(required: Stage, sampler: Sampler) -> None:
    """The same kills: no sweep sees a Burstable pod on a grant (it would fail the test), and all start in the end."""
    found = started_while_away(required, sampler)
    assert found.seconds == {}
    assert found.words == ""
    held_back = required.node.run(
        "journalctl -u containerd --no-pager -o cat | grep -c 'required plugin'; true"
    ).strip()
    assert int(held_back) > 0
    report.record("with required_plugins: pods that started after kills; on another's CPUs; attempts held back",
                  f"{len(found.names)}; 0; {held_back}")  # fmt: skip
