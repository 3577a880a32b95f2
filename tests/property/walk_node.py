"""The node of the random walk: API server, kubelet, runtime and kernel in small, and the agent's real parts.

The agent is the engine on a scratch tree with its intake, its NRI driver and their threads. The walk (`walk`) says
what happens; everything here happens at once, and `settle` waits until the agent has taken it in.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.exempt import Exemptions
from agent.engine.engine import Engine
from agent.errors import SandboxRefused
from agent.host.cgroups.layout import CgroupDriver, ContainerRuntime
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.scratch import Layout, Scratch
from agent.kube.objects.pod_objects import SeenPod, seen
from agent.kube.watch.intake import Intake
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.pod import Qos
from agent.model.rules import OnMisalignment, Policy
from tests.flow.world import MemoryStore, World
from tests.patience import PATIENCE, until
from tests.property.walk_judge import Cpus, Judge, Scene, Spot

LAYOUTS = {
    "v2": Layout(),
    "v1": Layout(version=1, driver=CgroupDriver.CGROUPFS),
    "crun": Layout(runtime=ContainerRuntime.CRIO, inner=True),
    "kind": Layout(driver=CgroupDriver.CGROUPFS, root=("kubelet",)),
}
"""Cgroups as nodes have them."""
ANSWERED = 5.0
"""Seconds of a loaded machine in which a question of the runtime is answered, whatever hangs; alone it has 0.2."""
ENDED = ("Succeeded", "Failed")
SYSTEM = "kube-system"


class Store(MemoryStore):
    """A disk that is full, read-only, or hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> None:
        self.free.wait()
        super().save(ledger, extra)


class AgentWorld(World):
    """A World that knows the containers that the API names, and no others."""

    def __init__(self, known: Mapping[str, Spot], folder: Path, **options: Any) -> None:  # noqa: ANN401 - a World's
        self._known = known
        super().__init__(folder, **options)

    def names(self) -> dict[str, Spot]:
        return dict(self._known)


class Busy:
    """An engine whose news from the runtime may be late; what it is asked it answers at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.go = engine, threading.Event()
        self.go.set()
        self.marks = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the engine's
        return getattr(self._engine, name)

    def containers_seen(self, names: Mapping[str, Spot]) -> None:
        """Names of containers: the thread's work."""
        self.go.wait()
        self._engine.containers_seen(names)

    def container_gone(self, number: str) -> None:
        """The runtime removed a container, or the walk waits for what it told before."""
        if number == "mark":
            self.marks += 1
        else:
            self._engine.container_gone(number)


@dataclass
class Box:
    """A container as the kubelet has it; `cpu` in thousandths as allocated, `path` while it has a cgroup."""

    name: str
    cpu: int
    init: bool = False
    made: int = 0
    path: str = ""
    done: bool = False
    number: str = ""


@dataclass
class Bound:
    """A pod of this node. `body` is the API's object, while it has one."""

    uid: str
    body: dict[str, Any]
    boxes: list[Box]
    scheduled: bool
    accepted: bool | None = None
    sandbox: str = ""
    sandboxes: int = 1
    sandbox_path: str = ""
    there: bool = True
    static: bool = False
    folder: bool = False
    """Whether its cgroup is there."""
    old: bool = False
    said: dict[str, int] = field(default_factory=dict)
    """What the agent may count of each container: as it was bound, or as the last status said that it was told."""

    @property
    def phase(self) -> str:
        return str(self.body["status"].get("phase", ""))

    @property
    def living(self) -> bool:
        return bool(self.sandbox_path) or any(each.path for each in self.boxes)

    @property
    def qos(self) -> Qos:
        return Qos(self.body["status"]["qosClass"])


class Node:
    """All of it. `faults` names what hinders the agent now."""

    def __init__(self, folder: Path, layout: str, text: str, settings: Mapping[str, Any], *, nri: bool) -> None:
        self.text, self.machine = text, parse_synthetic(text)
        self.folder, self.settings, self.now = folder, dict(settings), 1000.0
        self.layout = LAYOUTS[layout]
        self.tree = Scratch.create(
            folder, cpus=self.machine.online, nodes=self.machine.node_set, setup=self.layout
        )  # fmt: skip
        self.store, self.judge = Store(), Judge()
        self.pods: dict[str, Bound] = {}
        self.stream: list[tuple[str, Any]] = []
        self.watch, self.api, self.nri = "up", True, nri
        self.less = 0
        self.spaces: dict[str, dict[str, str]] = {}
        self.observing = False
        self.stumbled: list[str] = []
        self.pin_adopted = True
        self.count = self.changes = 0
        self.under: dict[str, int] = {}
        """Uid of a refused pod -> how often settings or machine had changed when it was."""
        self.entered: set[str] = set()
        """Uids of pods that the ledger had at the last look."""
        self.begin(checkpoint=True)

    # ---- the agent

    def begin(self, *, checkpoint: bool) -> None:
        """The agent begins, with its ledger or without; a disk that hangs would keep it from that."""
        self.store.free.set()
        self.changes += 1
        if not checkpoint:
            self.entered = set()
            self.store.saved, self.store.extra = None, {}
        found = [seen(each.body, self._defaults_of(each.body)) for each in self._listed()] if self.api else []
        live = [each for each in found if not each.ended]
        names = {number: (each.pod.uid, name) for each in live for number, name in each.containers.items()}
        ran = {cgroup for each in self.pods.values() if any(box.path for box in each.boxes) for cgroup in [each.uid]}
        exempt = Exemptions((SYSTEM,)).why
        self.world = AgentWorld(
            names, self.folder, machine=self._machine(), settings=self.settings, store=self.store,
            pods=[each.pod for each in live if not exempt(each.pod)], exempt=exempt, clock=lambda: self.now,
            pin_adopted=self.pin_adopted, observe_only=self.observing,
        )  # fmt: skip
        self.engine = self.world.engine

        def adopt(there: list[SeenPod], words: Mapping[str, Any]) -> None:
            known = {number: (of.pod.uid, name) for of in there for number, name in of.containers.items()}
            self.engine.adopt([of.pod for of in there if of.pod.uid in ran], known, words, {o.pod.uid for o in there})

        self.intake = Intake(
            self.engine, self, self._defaults, ran.__contains__, failed=self.stumbled.append,
            waits=lambda: not self.engine.snapshot.listening, adopt=adopt,
        )  # fmt: skip
        self.busy = Busy(self.engine)
        self.decisions = EngineDecisions(self.busy, lambda _address: Usable((), ""))
        self.driver = NriDriver(self.decisions, find=self._find, enforcing=lambda: self.engine.acting)
        self.decisions.start()
        self.intake.start()
        self.stream, self.alive = [], True
        if self.watch == "up":
            self.relist()
        if self.nri:
            self.synchronize()

    def kill(self) -> None:
        """The agent ends where it is; what had come and was not decided is lost with it."""
        self.store.free.set()
        self.busy.go.set()
        self.intake.stop(PATIENCE)
        self.decisions.stop(PATIENCE)
        self.alive = False

    def pod_seen(self, _body: Mapping[str, Any], _found: SeenPod) -> None:
        """Of the intake's listener."""

    def pod_malformed(self, _body: Mapping[str, Any], why: str) -> None:
        self.stumbled.append(why)

    def pod_gone(self, _uid: str) -> None:
        """Of the intake's listener."""

    def _machine(self) -> Machine:
        machine = parse_synthetic(self.text)
        return replace(
            machine, nodes=tuple(replace(each, memory=each.memory - (self.less << 22)) for each in machine.nodes)
        )

    def changed(self, **settings: Any) -> None:  # noqa: ANN401 - a document's values
        self.settings |= settings
        self.changes += 1
        if self.able:
            self.world.settings = dict(self.settings)
            self.engine.changed(self.world.node(self._machine()))

    @property
    def able(self) -> bool:
        """Whether the agent can be called: it lives, and no save hangs with its lock."""
        return self.alive and self.store.free.is_set()

    @property
    def hindered(self) -> frozenset[str]:
        state = self.engine.snapshot
        found = {
            "disk": bool(self.store.full), "hung": not self.store.free.is_set(),
            "kernel": self.world.kernel.moody, "away": not self.alive, "observing": not self.engine.acting,
            "blind": not (state.listening and state.listed), "late": self.watch != "up" or not self.busy.go.is_set(),
            "apart": bool(state.retries.tries),
        }  # fmt: skip
        return frozenset(name for name, so in found.items() if so)

    def settle(self) -> None:
        """Everything that was told has been taken in, and the agent has looked around."""
        if self.watch == "up" and self.alive:
            for what, value in self.stream:
                self._bring(what, value)
            self.stream = []
        if not self.able:
            return
        until(lambda: self.intake.waiting == 0, "the intake", pause=0.0005)
        if self.busy.go.is_set():
            marks = self.busy.marks
            self.decisions.container_gone("mark")
            until(lambda: self.busy.marks > marks, "news of the runtime", pause=0.0005)
        before = None
        for _ in range(4):
            if before == self.engine.ledger:
                break
            before = self.engine.ledger
            self.engine.reconcile()
        self._enter(self.engine.ledger)

    # ---- the API server and its watch

    def _listed(self) -> list[Bound]:
        return [each for each in self.pods.values() if each.there]

    def _defaults(self, space: str) -> Mapping[str, str]:
        return self.spaces.get(space, {})

    def _defaults_of(self, body: Mapping[str, Any]) -> Mapping[str, str]:
        return self._defaults(body["metadata"]["namespace"])

    def tell(self, pod: Bound) -> None:
        if pod.there:
            self.stream.append(("changed", copy.deepcopy(pod.body)))

    def gone(self, pod: Bound) -> None:
        """The API server has none of it any more."""
        pod.there = False
        self.stream.append(("deleted", copy.deepcopy(pod.body)))

    def _bring(self, what: str, body: dict[str, Any]) -> None:
        status = body["status"]
        for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            if "allocatedResources" in each:
                self.pods[body["metadata"]["uid"]].said[each["name"]] = amount(each["allocatedResources"]["cpu"])
        (self.intake.pod_changed if what == "changed" else self.intake.pod_deleted)(body)

    def relist(self) -> None:
        self.stream = []
        self.intake.pods_listed(frozenset(each.body["metadata"]["uid"] for each in self._listed()))
        for each in self._listed():
            self._bring("changed", copy.deepcopy(each.body))

    def _find(self, _namespace: str, _name: str, uid: str) -> bool:
        pod = self.pods.get(uid)
        if not self.api or pod is None or not pod.there or not self.engine.snapshot.listening:
            return False
        known = self.engine.snapshot.pods.get(uid)
        if known is not None:  # the watch has brought it, and it was not decided until now
            return self.decisions.decide(known.pod)
        found = seen(pod.body, self._defaults_of(pod.body))
        return found.pod.uid == uid and not found.ended and self.decisions.decide(found.pod)

    # ---- the kubelet

    def room(self) -> int:
        """Thousandths of a CPU that the scheduler or the kubelet could still give."""
        live = [each for each in self._listed() if each.phase not in ENDED]
        asked = sum(max(_milli(each.body), sum(b.cpu for b in each.boxes if not b.init)) for each in live)
        return 1000 * (len(self.machine.online) - 1) - asked

    def accept(self, pod: Bound) -> None:
        """The kubelet looks at a pod for the first time: there is room for it, or there is none."""
        others = [each for each in self.pods.values() if each.accepted and each.phase not in ENDED and each.there]
        asked = sum(box.cpu for each in others for box in each.boxes if not box.init)
        fits = asked + sum(box.cpu for box in pod.boxes if not box.init) <= 1000 * (len(self.machine.online) - 1)
        pod.accepted = fits
        if not fits:
            pod.body["status"] |= {"phase": "Failed", "reason": "OutOfcpu"}
        self.status(pod)

    def status(self, pod: Bound) -> None:
        """The kubelet writes what it has of a pod."""
        if pod.accepted:
            pod.body["status"]["startTime"] = "2026-01-01T00:00:01Z"
            pod.body["status"]["conditions"] = [
                {"type": "PodReadyToStartContainers", "status": "True" if pod.sandbox else "False"},
                {"type": "PodScheduled", "status": "True"},
            ]
            for key, init in (("initContainerStatuses", True), ("containerStatuses", False)):
                pod.body["status"][key] = [self._entry(pod, each) for each in pod.boxes if each.init is init]
        self.tell(pod)

    def _entry(self, pod: Bound, box: Box) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": box.name, "state": {"running" if box.path else "waiting": {}}}
        if box.number:
            entry["containerID"] = f"containerd://{box.number}"
        if box.made and (box.path or not pod.old):
            amounts = {"cpu": f"{box.cpu}m", "memory": "64Mi"}
            entry |= {"allocatedResources": amounts, "resources": {"requests": amounts, "limits": amounts}}
        return entry

    def start(self, pod: Bound) -> bool:
        """The kubelet goes one step: the sandbox, or the next container; whether there was one to go."""
        if not pod.sandbox_path:
            sandbox = replace(self._sandbox(pod), id=_number(pod.uid, "", pod.sandboxes))
            try:
                if self.asked:
                    self._in_time(lambda: self.driver.run_sandbox(sandbox))
            except SandboxRefused:
                return False
            self.tree.add_pod(pod.uid, pod.qos)
            pod.folder = True
            pod.sandbox, pod.sandbox_path = sandbox.id, self.tree.add_container(pod.uid, sandbox.id)
            self.status(pod)
            return True
        waiting = [each for each in pod.boxes if not each.path and not each.done]
        if not waiting or (not waiting[0].init and any(each.path for each in pod.boxes if each.init)):
            return False
        self.make(pod, waiting[0])
        return True

    @property
    def asked(self) -> bool:
        return self.nri and self.alive

    def make(self, pod: Bound, box: Box) -> None:
        """The runtime makes a container, and asks before it does."""
        box.made += 1
        box.number = _number(pod.uid, box.name, box.made)
        change = Adjustment()
        if self.asked:
            made = RuntimeContainer(box.number, pod.sandbox, box.name)
            change = self._in_time(lambda: self.driver.create_container(self._sandbox(pod), made))
        path = self.tree.add_container(pod.uid, box.number, processes=0)
        home = f"{path}/container" if self.layout.inner else path
        try:
            for file, value in (("cpuset.cpus", change.cpus), ("cpuset.mems", change.mems)):
                if value is not None:
                    self.tree.kernel_write(path, file, str(value))
        except OSError:  # the kernel refuses the set: runc gives up, and the kubelet tries again
            self.tree.remove_container(pod.uid, box.number)
            if not self.hindered:
                self.stumbled.append(f"container {box.name} of {pod.uid} could not be made with {change.cpus}")
            self.status(pod)
            return
        self.tree.spawn(home)
        box.path = path
        self.status(pod)

    def _in_time(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - the answer
        """An answer; one that a hanging disk delays is a fault."""
        began = time.monotonic()
        try:
            return ask()
        finally:
            if time.monotonic() - began > ANSWERED:
                self.stumbled.append("the runtime waited too long for an answer")

    def _sandbox(self, pod: Bound) -> Sandbox:
        meta = pod.body["metadata"]
        return Sandbox(pod.sandbox, meta["name"], meta["namespace"], pod.uid)

    def stop(self, pod: Bound, box: Box, *, again: bool = False) -> None:
        """A container ends; `again`: the kubelet makes it once more."""
        self.tree.remove_container(pod.uid, box.number)
        box.path, box.done = "", not again
        if self.asked:
            self.driver.event(
                "RemoveContainer", self._sandbox(pod), RuntimeContainer(box.number, pod.sandbox, box.name)
            )

    def end(self, pod: Bound, *, folder: bool = True) -> None:
        """All processes of a pod end; `folder`: the kubelet removes its cgroup at once, too."""
        for box in pod.boxes:
            if box.path:
                self.stop(pod, box)
            box.done = True
        if pod.sandbox_path:
            self.tree.remove_container(pod.uid, pod.sandbox)
            pod.sandbox_path = ""
            if self.asked:
                self.driver.event("RemovePodSandbox", self._sandbox(pod), None)
        if folder and pod.folder:
            self.tree.remove_pod(pod.uid)
            pod.folder = False

    def synchronize(self) -> None:
        """The runtime registers the agent: it names all that runs, and takes the sets of the answer."""
        live = [each for each in self.pods.values() if each.sandbox_path]
        boxes = [(pod, box) for pod in live for box in pod.boxes if box.path]
        made = tuple(RuntimeContainer(box.number, pod.sandbox, box.name) for pod, box in boxes)
        self.driver.configured("containerd", "v2.4.2")
        changes = self.driver.synchronize(tuple(self._sandbox(each) for each in live), made)
        for _, box in boxes:
            change = changes.get(box.number)
            if change is not None and change.cpus is not None:
                with contextlib.suppress(OSError):  # the runtime logs what the kernel refuses
                    self.tree.kernel_write(box.path, "cpuset.cpus", str(change.cpus))

    # ---- what the judge sees

    def scene(self) -> Scene:
        state = self.engine.snapshot
        # containers of a pod that is in no list are called by their ids
        called = {(pod.uid, box.number): box.name for pod in self.pods.values() for box in pod.boxes}
        return Scene(
            running=dict(self._running()),
            held={
                (uid, called.get((uid, name), name)): _cpus(cpus)
                for uid, each in state.ledger.cpus.assigned.items() for name, cpus in each.items()
            },
            counted={
                uid: tuple(dict(each.milli).get(node.id, 0) for node in self.machine.nodes)
                for uid, each in state.ledger.cpus.confined.items()
            },
            allocated={
                (pod.uid, box.name): max(_whole(box.cpu), _whole(pod.said.get(box.name, 0)))
                for pod in self.pods.values() if self._counts(pod) for box in pod.boxes
            },
            over=frozenset(
                uid for uid in {*self.pods, *state.ledger.pods}
                if uid not in self.pods
                or ((not self.pods[uid].there or self.pods[uid].phase in ENDED) and not self.pods[uid].living)
            ),
            online=_cpus(self.machine.online), reserved=_cpus(state.node.reserved),
            nodes=tuple(_cpus(each.cpus) for each in self._machine().nodes),
            refused=dict(self._refused()),
            single=state.node.rules.topology.policy in (Policy.SINGLE_NUMA_NODE, Policy.RESTRICTED),
            hindered=self.hindered, powerless=self.hindered - {"disk", "late"}, stopped=tuple(self._stopped()),
        )  # fmt: skip

    def _enter(self, ledger: Ledger) -> None:
        """Of a pod that is new in the ledger, the specification counts where no status says a container's amounts."""
        for uid in ledger.pods.keys() - self.entered:
            pod = self.pods.get(uid)
            for box in pod.boxes if pod is not None else ():
                if pod is not None and not box.init and (not box.made or (pod.old and not box.path)):
                    pod.said[box.name] = _milli(pod.body)
        self.entered = set(ledger.pods)

    def _counts(self, pod: Bound) -> bool:
        """Whether the kubelet has allocated anything to a pod: it runs it, or a scheduler has bound it."""
        return bool(pod.accepted) or (pod.scheduled and pod.accepted is None) or pod.static or pod.living

    def _running(self) -> Iterator[tuple[str, tuple[Spot, Cpus]]]:
        base, file = self.folder, "cpuset.cpus.effective"
        if self.layout.version == 1:
            base, file = self.folder / "cpuset", "cpuset.effective_cpus"
        for pod in self.pods.values():
            for box in pod.boxes:
                if box.path:
                    home = f"{box.path}/container" if self.layout.inner else box.path
                    text = (base / home.lstrip("/") / file).read_text("utf-8")
                    yield box.path, ((pod.uid, box.name), _cpus(CpuSet.parse(text.strip())))

    def _refused(self) -> Iterator[tuple[str, tuple[int, str]]]:
        state = self.engine.snapshot
        self.under = {
            uid: self.under.get(uid, self.changes)
            for uid, each in state.pods.items() if each.refusal is not None
        }  # fmt: skip
        waiting = [uid for uid, each in state.pods.items() if each.refusal is not None and not each.ended]
        for uid in waiting:
            pod, known = self.pods.get(uid), state.pods[uid]
            if pod is None or not pod.there or any(box.made for box in pod.boxes) or known.refusal is None:
                continue
            if self.under[uid] != self.changes:
                continue  # by settings, or on a machine, of before
            if len(waiting) > 1 or "final" in known.refusal.facts or known.exempt or not known.settings.pin:
                continue  # one may stand in the way of another, and some are refused for good
            wish = known.settings.on_misalignment or state.node.rules.on_misalignment
            if wish is OnMisalignment.FAIL and "open" not in known.refusal.facts:
                continue  # its deadline is written: the kubelet ends it, whatever is free by then
            asked = max(_milli(pod.body), pod.boxes[-1].cpu)
            inits = max((box.cpu for box in pod.boxes if box.init), default=0)
            whole = 0 if asked % 1000 or inits % 1000 else max(asked, inits) // 1000
            whole += bool(whole) and state.node.rules.cpu.options.strict_reservation  # the pool must not become empty
            if whole <= min(len(each.cpus) for each in state.node.machine.nodes) and self._counts(pod):
                yield uid, (whole, f"{known.refusal.message} {known.refusal.details}")

    def _stopped(self) -> Iterator[str]:
        yield from self.stumbled
        for what, text in self.world.ears.problems:
            if what in ("set-aside", "intake"):
                yield f"{what}: {text}"
        if self.alive:
            for thread in (self.intake._thread, self.decisions._thread):
                if not thread.is_alive():
                    yield f"thread {thread.name} has ended"


def _cpus(found: CpuSet) -> Cpus:
    return frozenset(found)


def _whole(milli: int) -> int:
    return 0 if milli % 1000 else milli // 1000


def _number(uid: str, name: str, count: int) -> str:
    return hashlib.sha256(f"{uid}/{name}/{count}".encode()).hexdigest()


def _milli(body: Mapping[str, Any]) -> int:
    found = (each["resources"].get("requests", {}).get("cpu", "0") for each in body["spec"]["containers"])
    return sum(map(amount, found))


def amount(cpu: str) -> int:
    """Thousandths of a CPU."""
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)
