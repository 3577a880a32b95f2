"""What a pod that holds something may hold: what the kubelet has followed; the rest goes back, whatever is said."""

from __future__ import annotations

import copy
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.admission.resize import pending
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.exempt import Exemptions
from agent.host.scratch import Layout, Scratch
from agent.model.idset import CpuSet
from agent.model.machine import Machine
from tests.flow.world import World
from tests.unit.test_layout import SETUPS
from tests.world.manifests import container, manifest

CORES = "2 sockets x 1 node x 4 cores x 2 threads"
WHOLE: dict[str, Any] = {
    "topologyManagerScope": "pod",
    "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
}


def node(folder: Path, machine: str | Machine = CORES, **more: Any) -> World:  # noqa: ANN401 - a world's arguments
    """Make a node whose pods are all listed."""
    made = World(folder, machine=machine, **more)
    made.engine.pods_listed(set())
    return made


def noted(body: Mapping[str, Any], **annotations: str) -> dict[str, Any]:
    """Copy a pod, with more annotations."""
    found = copy.deepcopy(dict(body))
    found["metadata"]["annotations"] |= annotations
    return found


def held(world: World, uid: str = "hog", name: str = "app") -> int:
    """Count the CPUs that a container holds, after a look at what it runs on."""
    cpus = CpuSet.parse(world.holds(uid, name))
    assert CpuSet.parse(world.effective(uid, name)) == cpus or not cpus
    return len(cpus)


def why(world: World, uid: str = "hog") -> str:
    """Read what the ledger says of a pod."""
    return "; ".join(world.engine.ledger.pods[uid].why.values())


KEEPS_FROM_MORE: dict[str, tuple[dict[str, str], str]] = {
    "pin: false": ({"numalign.io/pin": "false"}, "numalign.io/pin is false; it gets no more"),
    "exclusive: none": ({"numalign.io/exclusive": "none"}, "numalign.io/exclusive: none leaves it out"),
}


@pytest.mark.parametrize("name", KEEPS_FROM_MORE)
def test_no_annotation_keeps_a_pod_from_giving_back(tmp_path: Path, name: str) -> None:
    """It keeps the pod from more, which is said; a shrink is followed, and another pod gets what was given back."""
    annotations, said = KEEPS_FROM_MORE[name]
    world = node(tmp_path, exempt=Exemptions().why)
    world.run(manifest("hog", container(cpu="8")))
    world.see(noted(manifest("hog", container(cpu="8")), **annotations))
    assert held(world) == 8, "nothing moves by itself"
    world.see(noted(manifest("hog", container(cpu="9")), **annotations))
    assert held(world) == 8
    assert said in why(world)
    assert why(world).startswith("resize not followed from 8 to 9 CPUs: ")
    world.see(noted(manifest("hog", container(cpu="1")), **annotations))
    assert (held(world), why(world), pending(world.engine.ledger)) == (1, "", ())
    world.run(manifest("next", container(cpu="9"), created=1))
    assert held(world, "next") == 9


def test_the_mark_of_static_pods_alone_keeps_a_pod_from_nothing(tmp_path: Path) -> None:
    """An author may write kubernetes.io/config.source: the pod stays an ordinary one, which grows and shrinks."""
    world, mark = node(tmp_path, exempt=Exemptions().why), {"kubernetes.io/config.source": "file"}
    world.run(manifest("hog", container(cpu="8")))
    for cpu in (7, 8, 1):
        world.see(noted(manifest("hog", container(cpu=str(cpu))), **mark))
        assert (held(world), why(world)) == (cpu, "")


def test_pods_that_are_left_alone_give_back_and_grow_again_when_they_are_not(tmp_path: Path) -> None:
    """Their namespace is excluded while they run: a growth waits until it is not, a shrink waits for nothing."""
    excluded: list[str] = []
    world = node(tmp_path, exempt=lambda pod: "left alone (excludedNamespaces)" if pod.namespace in excluded else "")
    for uid in ("more", "less"):
        world.run(manifest(uid, container(cpu="4")))
    excluded.append("default")
    world.engine.changed(world.node())
    world.see(manifest("more", container(cpu="6")), manifest("less", container(cpu="2")))
    assert (held(world, "more"), held(world, "less")) == (4, 2)
    assert "left alone (excludedNamespaces); it gets no more" in why(world, "more")
    world = World(tmp_path, machine=CORES, store=world.store, pods=world.pods.values(), exempt=world.engine._exempt)
    world.engine.pods_listed({"more", "less"})
    world.engine.reconcile()
    assert held(world, "more") == 4
    excluded.clear()
    world.engine.changed(world.node())
    world.engine.reconcile()
    assert (held(world, "more"), why(world, "more")) == (6, "")


def test_pin_adopted_counts_for_what_ran_before_the_agent_alone(tmp_path: Path) -> None:
    """What this agent granted grows and shrinks after a restart with pinAdopted: false: it is not adopted."""
    before = node(tmp_path)
    before.run(manifest("hog", container(cpu="6")))
    after = World(tmp_path, machine=CORES, store=before.store, pods=before.pods.values(), pin_adopted=False)
    for cpu in (1, 7, 2):
        after.see(manifest("hog", container(cpu=str(cpu))), ran={"hog"})
        assert (held(after), why(after)) == (cpu, "")


def test_an_adopted_pod_gives_back_though_adopted_pods_are_not_pinned_any_more(tmp_path: Path) -> None:
    """The ledger was lost and pinAdopted is false: what it runs on is its own, and it gets no more than that."""
    before = node(tmp_path)
    before.run(manifest("hog", container(cpu="6")))
    after = World(tmp_path, machine=CORES, pods=before.pods.values(), pin_adopted=False)
    after.engine.pods_listed({"hog"})
    after.see(manifest("hog", container(cpu="7")), ran={"hog"})
    assert held(after) == 6
    assert "it ran before the agent, and pinAdopted is false; it gets no more" in why(after)
    after.see(manifest("hog", container(cpu="2")), ran={"hog"})
    assert (held(after), why(after)) == (2, "")


@pytest.mark.parametrize("how", ["of the node", "of the pod"])
def test_whole_cores_are_kept_and_the_rest_goes_back(tmp_path: Path, how: str) -> None:
    """full-pcpus-only: from 8 to 1 it keeps one core, says so, and gives that back too when cores may be shared."""
    options: dict[str, Any] = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    world = node(tmp_path, settings=options if how == "of the node" else {})
    world.run(manifest("hog", container(cpu="8")))
    wish = {"numalign.io/cpu-options": "full-pcpus-only=true"} if how == "of the pod" else {}
    world.see(noted(manifest("hog", container(cpu="1")), **wish))
    kept = world.holds("hog")
    assert held(world) == 2
    assert CpuSet.parse(kept) in world.machine.cores
    assert why(world) == (
        "resize not followed from 2 to 1 CPUs: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2; "
        f"it keeps CPUs {kept}"
    )
    world.engine.reconcile()
    assert held(world) == 2
    world.engine.changed(world.node(cpuManagerPolicyOptions={}))
    world.see(manifest("hog", container(cpu="1")))
    world.engine.reconcile()
    assert (held(world), why(world)) == (1, "")


def test_a_burstable_pod_whose_namespace_may_not_any_more_gives_back(tmp_path: Path) -> None:
    """It keeps its CPUs when exclusiveNamespaces changes, gets no more, and gives back what it does not request."""
    other = {"name": "side", "image": "example.com/x", "resources": {"requests": {"cpu": "100m"}}}
    world = node(tmp_path)

    def body(cpu: str) -> dict[str, Any]:
        return manifest("hog", container(cpu=cpu), other, exclusive="app")

    world.run(body("4"))
    world.engine.changed(world.node(exclusiveNamespaces=["shop"]))
    world.see(body("6"))
    assert held(world) == 4
    assert "resize not followed from 4 to 6 CPUs: numalign.io/exclusive is not for pods of namespace default " in why(
        world
    )
    world.see(body("1"))
    assert (held(world), why(world)) == (1, "")


def test_a_mixed_container_gives_back_its_own_cpus(tmp_path: Path) -> None:
    """pin: false beside numalign.io/mixed: its own CPUs become fewer, its shared ones stay."""
    world = node(tmp_path)
    world.run(manifest("hog", container(cpu="4"), mixed="app"))
    shared = CpuSet.parse(world.effective("hog")) - CpuSet.parse(world.holds("hog"))
    world.see(noted(manifest("hog", container(cpu="1"), mixed="app"), **{"numalign.io/pin": "false"}))
    own = CpuSet.parse(world.holds("hog"))
    assert (len(own), CpuSet.parse(world.effective("hog"))) == (1, own | shared)


def test_a_confined_pod_gives_back_of_cpus_though_its_memory_cannot_grow(tmp_path: Path) -> None:
    """numalign.io/align: CPUs and memory are looked at apart; pin: false keeps it from more of either."""
    world = node(tmp_path, machine="2 sockets x 1 node x 4 cores x 1 thread, 1G per node")

    def body(cpu: str, memory: str, pin: str = "true") -> dict[str, Any]:
        return manifest("web", container(cpu=cpu, memory=memory), align="numa,memory", pin=pin)

    world.run(body("2500m", "100Mi"))
    world.see(body("500m", "2Gi"))
    found = world.engine.ledger.cpus.confined["web"]
    assert (sum(part for _, part in found.milli), sum(part for _, part in found.limit)) == (500, 100 << 20)
    assert why(world, "web").startswith("resize not followed: 2147483648 bytes of memory are needed on NUMA nodes ")
    world.see(body("1500m", "50Mi", pin="false"))
    found = world.engine.ledger.cpus.confined["web"]
    assert (sum(part for _, part in found.milli), sum(part for _, part in found.limit)) == (500, 50 << 20)
    assert "numalign.io/pin is false; it gets no more" in why(world, "web")


def test_memory_goes_back_with_a_pod_that_is_not_pinned_any_more(tmp_path: Path) -> None:
    """With memoryManagerPolicy Static and pin: false: less memory is accounted, and never more."""
    reserved = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = node(tmp_path, machine="2 sockets x 1 node x 4 cores x 1 thread, 4G per node", settings=reserved)

    def accounted() -> int:
        return sum(block.size for block in world.engine.ledger.grant("db", "app").memory) >> 20

    world.run(manifest("db", container(memory="1Gi")))
    for memory, counted in (("2Gi", 1024), ("100Mi", 100), ("1Gi", 100)):
        world.see(manifest("db", container(memory=memory), pin="false"))
        assert accounted() == counted
    assert why(world, "db") == "resize not followed: numalign.io/pin is false; it gets no more; it keeps what it has"


def test_the_cpu_manager_may_be_off_by_then(tmp_path: Path) -> None:
    """The policy none moves no pod: one that was pinned before gives back all the same, and gets no more."""
    world = node(tmp_path, settings={"cpuManagerPolicy": "static"})
    world.run(manifest("hog", container(cpu="6")))
    world.engine.changed(world.node(cpuManagerPolicy="none"))
    world.see(manifest("hog", container(cpu="7")))
    assert held(world) == 6
    assert "cpuManagerPolicy is none now" in why(world)
    world.see(manifest("hog", container(cpu="2")))
    assert (held(world), why(world)) == (2, "")


def whole(uid: str, cpu: str, *containers: dict[str, Any], memory: str = "1Gi") -> dict[str, Any]:
    """Make a pod with resources of its own."""
    body = manifest(uid, *containers)
    sizes = {"cpu": cpu, "memory": memory}
    body["spec"]["resources"] = {"requests": sizes, "limits": sizes}
    return body


def test_a_pod_that_is_managed_as_a_whole_gives_back(tmp_path: Path) -> None:
    """Of the CPUs that its containers share, one of which stays for them; its exclusive container is not moved."""
    world = node(tmp_path, settings=WHOLE)
    bare = {"name": "helper", "image": "example.com/x"}
    world.run(whole("hog", "6", container(cpu="2"), bare))
    app, helper = world.holds("hog"), CpuSet.parse(world.effective("hog", "helper"))
    world.see(whole("hog", "4", container(cpu="2"), bare))
    assert (world.holds("hog"), world.effective("hog"), why(world)) == (app, app, "")
    assert len(world.engine.ledger.cpus.pools["hog"]) == 4
    left = CpuSet.parse(world.effective("hog", "helper"))
    assert (len(left), left.issubset(helper)) == (2, True)
    world.see(whole("hog", "5", container(cpu="2"), bare))
    assert len(world.engine.ledger.cpus.pools["hog"]) == 4
    assert why(world).startswith("resize not followed: the pod is managed as a whole")
    world.see(whole("hog", "2", container(cpu="1"), bare))
    assert (held(world), len(CpuSet.parse(world.effective("hog", "helper"))), why(world)) == (1, 1, "")
    assert CpuSet.parse(world.holds("hog")).issubset(CpuSet.parse(app))
    world.see(whole("hog", "1500m", container(cpu="1"), bare))
    assert (world.engine.ledger.cpus.pools, world.engine.ledger.cpus.assigned) == ({}, {})
    world.run(manifest("next", container(cpu="14"), created=1))
    assert held(world, "next") == 14


def test_the_kubelets_quota_stays_with_a_container_that_shares_now(tmp_path: Path) -> None:
    """From 4 CPUs to half a one: the quota of the kubelet is left alone; with a CPU of its own it is lifted again."""
    world = node(tmp_path)
    world.run(manifest("hog", container(cpu="4")))
    for cpu, quota in (("500m", "50000 100000"), ("1", "max 100000")):
        world.see(manifest("hog", container(cpu=cpu)))
        world.tree.kernel_write(world.path("hog", "app"), "cpu.max", "50000 100000")
        world.engine.reconcile()
        found = next(each for each in world.cgroups.observe().cgroups if each.path == world.path("hog", "app"))
        assert (found.quota, held(world)) == (quota, 0 if cpu == "500m" else 1)


# ---- what was given back is no other pod's before its processes have left it


@pytest.mark.parametrize("refuses", ["its container", "all of its pod"])
@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_no_pod_gets_what_a_container_has_not_left(tmp_path: Path, setup: Layout, refuses: str) -> None:
    """The kernel refuses to shrink it: neither a new pod nor the shared pool gets those CPUs, until it lets go."""
    machine = parse_synthetic("2 sockets x 1 node x 4 cores x 1 thread")
    Scratch.create(tmp_path, cpus=machine.online, nodes=machine.node_set, setup=setup)
    world = node(tmp_path, machine=machine)
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    world.run(manifest("half", container(cpu="500m"), created=2))
    world.run(manifest("hog", container(cpu="4"), container("side", cpu="500m"), created=3))
    world.kernel.refuse(errno.EBUSY, path=world.path("hog", "app") if refuses == "its container" else "podhog")
    world.see(manifest("hog", container(cpu="1"), container("side", cpu="500m"), created=3))
    world.run(manifest("next", container(cpu="4"), container("beside", cpu="500m"), created=4))
    besides, stays = [("web", "app"), ("half", "app"), ("next", "app"), ("next", "beside"), ("hog", "side")], CpuSet()
    for _ in range(3):
        world.engine.reconcile()
        stays = CpuSet.parse(world.effective("hog"))
        assert len(stays) >= 3, "on v2 its pod's set takes off what is another's now"
        for uid, name in besides:
            assert not CpuSet.parse(world.effective(uid, name)) & stays, (uid, name)
    assert "EBUSY" in world.ears.unenforced["hog"]["app"]
    assert ("occupied" in str(world.ears.unenforced["next"])) == (len(stays) == 4)
    world.kernel.mend()
    world.engine.reconcile()
    world.engine.reconcile()
    world.check()
    assert (held(world), held(world, "next")) == (1, 4)
    assert CpuSet.parse(world.effective("web")) == world.engine.ledger.cpus.shared


def test_after_a_restart_no_pod_gets_what_a_container_has_not_left(tmp_path: Path) -> None:
    """The shrink was saved, the agent ended before it wrote, and the kernel refuses the write to the next agent."""
    before = node(tmp_path)
    before.run(manifest("web", container(cpu="", memory=""), created=1))
    before.run(manifest("hog", container(cpu="4")))
    stays = CpuSet.parse(before.effective("hog"))
    before.engine.halted = True
    before.see(manifest("hog", container(cpu="1")))
    after = World(tmp_path, machine=CORES, store=before.store, pods=before.pods.values())
    after.pods = dict(before.pods)
    after.kernel.refuse(errno.EBUSY, path=after.path("hog", "app"))
    after.engine.containers_seen(after.names())
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    assert len(CpuSet.parse(after.holds("hog"))) == 1
    assert not CpuSet.parse(after.effective("web")) & stays
    after.kernel.mend()
    after.engine.reconcile()
    after.engine.reconcile()
    after.check()


def test_a_container_that_shares_now_leaves_before_another_gets_its_cpus(tmp_path: Path) -> None:
    """From 4 CPUs to a fraction while the kernel refuses: a pod that is granted these CPUs waits on the pool."""
    world = node(tmp_path)
    world.run(manifest("hog", container(cpu="4")))
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    stays = CpuSet.parse(world.effective("hog"))
    world.kernel.refuse(errno.EINVAL, path=world.path("hog", "app"))
    world.see(manifest("hog", container(cpu="500m")))
    world.run(manifest("next", container(cpu="14"), created=2))
    assert CpuSet.parse(world.holds("next")) & stays
    for _ in range(3):
        world.engine.reconcile()
        assert (
            not CpuSet.parse(world.effective("next"))
            & CpuSet.parse(world.effective("hog")) - world.engine.ledger.cpus.shared
        )
    assert "next" in world.ears.unenforced
    world.kernel.mend()
    world.engine.reconcile()
    world.engine.reconcile()
    assert (held(world, "next"), world.ears.unenforced["next"]) == (14, {})
    world.check()


def test_less_is_written_when_it_is_saved(tmp_path: Path) -> None:
    """On a full disk the pod keeps what is saved, pin: false or not, and that is told; the next save follows it."""
    world = node(tmp_path)
    for uid, pin in (("hog", "true"), ("other", "false")):
        world.run(manifest(uid, container(cpu="4"), pin="true"))
        world.store.full = "No space left on device"
        world.see(manifest(uid, container(cpu="1"), pin=pin))
        assert held(world, uid) == 4
        said = world.engine.snapshot.shown.pods[uid].why["app"]
        assert said.startswith("resize not followed: ")
        assert said.endswith("No space left on device; it keeps what it has until it can be saved")
        world.store.full = ""
        world.engine.reconcile()
        assert (held(world, uid), why(world, uid)) == (1, "")


# ---- what it requests counts as the kubelet has followed it


def sizes(cpu: str) -> dict[str, Any]:
    """Write amounts into a status, as a kubelet does that can resize."""
    amounts = {"cpu": cpu, "memory": "64Mi"}
    return {"allocatedResources": amounts, "resources": {"requests": amounts, "limits": amounts}}


def told(body: Mapping[str, Any], **statuses: Mapping[str, Any]) -> dict[str, Any]:
    """Give a Guaranteed pod statuses of its containers; of one that is not named the kubelet says nothing."""
    inits = {each["name"] for each in body["spec"]["initContainers"]}
    found: dict[str, Any] = {"phase": "Running", "qosClass": "Guaranteed"}
    found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    for key, mine in (("initContainerStatuses", inits), ("containerStatuses", statuses.keys() - inits)):
        found[key] = [{"name": name, **each} for name, each in statuses.items() if name in mine]
    return {**body, "status": found}


WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "PodInitializing"}}}
CRASHED: dict[str, Any] = {"containerID": "containerd://x", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
ENDED: dict[str, Any] = {"containerID": "containerd://y", "state": {"terminated": {"exitCode": 0}}}


@pytest.mark.parametrize("status", [WAITING, CRASHED, ENDED, {}, {"allocatedResources": {"cpu": "-3"}}], ids=str)
def test_a_resize_of_which_the_kubelet_says_nothing_is_not_followed(
    tmp_path: Path, status: Mapping[str, Any]
) -> None:
    """A container waits, crashes or has no status: it holds what it held, until the kubelet names its numbers."""
    world = node(tmp_path)
    running = {"containerID": "containerd://i", "state": {"running": {}}, **sizes("2")}

    def hog(cpu: str, **app: Any) -> dict[str, Any]:  # noqa: ANN401 - a status
        return told(manifest("hog", container(cpu=cpu), inits=[container("init", "2")]), init=running, app=app)

    world.heard(hog("2", **WAITING))
    world.start("hog", "init")
    before = world.engine.ledger
    for cpu in ("6", "14", "1"):
        world.heard(hog(cpu, **status))
        assert world.engine.ledger == before
    world.heard(hog("6", **{"containerID": "containerd://x", **sizes("6")}))
    assert len(CpuSet.parse(world.holds("hog"))) == 6
    world.heard(hog("1", **status))
    assert len(CpuSet.parse(world.holds("hog"))) == 6
    assert pending(world.engine.ledger) == ()


@pytest.mark.parametrize("wish", ["wait", "fail", "evict", "run"])
def test_a_refused_pod_gets_no_more_than_it_was_refused_with(tmp_path: Path, wish: str) -> None:
    """It is resized while it holds nothing: more waits for the kubelet's numbers, and less fits at once."""
    world = node(tmp_path, settings={"onMisalignment": wish})
    world.run(manifest("job", container(cpu="14")))
    world.engine.pods_gone(["job"])

    def hog(cpu: str) -> dict[str, Any]:
        return told(manifest("hog", container(cpu=cpu)), app=WAITING)

    world.heard(hog("4"))
    world.heard(hog("12"))
    assert world.engine.pods["hog"].pod.containers[0].requests["cpu"] == 4000
    world.heard(hog("3"))
    world.heard(hog("5"))
    world.end("job")
    world.engine.reconcile()
    assert len(CpuSet.parse(world.holds("hog"))) == 3


def test_a_crash_loop_keeps_what_it_holds_through_a_restart_of_the_agent(tmp_path: Path) -> None:
    """Kubelets of 1.27 to 1.32 say amounts of running containers alone: each crash and each start moves no CPU."""
    world = node(tmp_path)
    world.heard(told(manifest("hog", container(cpu="2")), app={**CRASHED, **sizes("2")}))
    before = world.holds("hog")
    large = manifest("hog", container(cpu="14"))
    for status in (CRASHED, {**CRASHED, **sizes("2")}, CRASHED):
        world.heard(told(large, app=status))
        assert world.holds("hog") == before
    again = World(tmp_path, machine=CORES, store=world.store)
    again.heard(told(large, app=CRASHED))
    again.engine.pods_listed({"hog"})
    assert again.holds("hog") == before


@pytest.mark.parametrize("why", ["refused", "not saved"])
def test_what_no_ledger_has_is_put_right_by_the_kubelets_first_numbers(tmp_path: Path, why: str) -> None:
    """A resize before the first container, then a restart: the specification counts, until a container's status."""
    world = node(tmp_path, settings={"onMisalignment": "wait"})
    if why == "refused":
        world.run(manifest("job", container(cpu="14")))
    else:
        world.store.full = "No space left on device"
    for cpu in ("4", "12"):
        world.heard(told(manifest("hog", container(cpu=cpu)), app=WAITING))
    assert "hog" not in world.engine.ledger.pods
    assert world.engine.pods["hog"].pod.containers[0].requests["cpu"] == 4000
    world.store.full = ""
    there = [pod for pod in world.pods.values() if pod.uid == "job"]
    again = World(tmp_path, machine=CORES, store=world.store, settings={"onMisalignment": "wait"}, pods=there)
    again.heard(told(manifest("hog", container(cpu="12")), app=WAITING))
    if why == "refused":
        again.end("job")
    again.engine.pods_listed({"hog"})
    assert len(CpuSet.parse(again.holds("hog"))) == 12, "no more than the scheduler counts for a resize that waits"
    again.start("hog")
    again.heard(told(manifest("hog", container(cpu="12")), app={"containerID": "containerd://x", **sizes("4")}))
    assert held(again) == 4
    again.run(manifest("next", container(cpu="10"), created=1))
    assert held(again, "next") == 10


def test_sidecars_and_confined_pods_wait_for_the_kubelets_numbers_too(tmp_path: Path) -> None:
    """Neither a sidecar that waits nor a confined pod's container grows by its specification."""
    world = node(tmp_path)

    def pair(cpu: str) -> dict[str, Any]:
        side = container("side", cpu, restartPolicy="Always")
        return told(manifest("pair", container(cpu="2"), inits=[side]), side=WAITING, app=WAITING)

    def web(cpu: str) -> dict[str, Any]:
        return told(manifest("web", container(cpu=cpu), align="numa"), app=WAITING)

    world.heard(pair("1"), web("500m"))
    before = world.engine.ledger
    assert before.cpus.confined["web"].milli
    world.heard(pair("5"), web("3500m"))
    assert world.engine.ledger == before


def test_pod_level_resources_wait_for_the_kubelets_numbers_too(tmp_path: Path) -> None:
    """A pod that is managed as a whole: status.allocatedResources counts, and without it what was counted before."""
    world = node(tmp_path, settings=WHOLE)
    bare = {"name": "helper", "image": "example.com/x"}

    def hog(cpu: str, **status: Any) -> dict[str, Any]:  # noqa: ANN401 - a status
        body = told(whole("hog", cpu, container(cpu="2"), bare), app=WAITING, helper=WAITING)
        return {**body, "status": {**body["status"], **status}}

    world.heard(hog("6"))
    before = world.engine.ledger
    world.heard(hog("3"), hog("8"))
    assert world.engine.ledger == before
    world.heard(hog("3", allocatedResources={"cpu": "3", "memory": "1Gi"}))
    assert len(world.engine.ledger.cpus.pools["hog"]) == 3


def test_a_static_pods_manifest_counts(tmp_path: Path) -> None:
    """No kubelet resizes a static pod: what its mirror says counts, whatever its status says or does not."""
    world = node(tmp_path)

    def mirror(cpu: str) -> dict[str, Any]:
        marks = {f"kubernetes.io/config.{part}": "a" * 32 for part in ("hash", "mirror")}
        return told(noted(manifest("static", container(cpu=cpu)), **marks), app=WAITING)

    world.heard(mirror("2"))
    world.heard(mirror("4"))
    assert len(CpuSet.parse(world.holds("a" * 32))) == 4
