"""A random walk over what befalls a node and its agent, with a judge of one page (`walk_judge`)."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from agent.core.machines.synthetic import parse_synthetic
from tests import in_memory
from tests.property.walk_node import ENDED, LAYOUTS, SYSTEM, Bound, Box, Node, amount
from tests.world.manifests import container, manifest

MACHINES = [
    "2 sockets x 1 node x 4 cores x 1 thread, 4G per node",
    "1 socket x 1 node x 6 cores x 1 thread, 4G per node",
]
WISHES = ["run", "run", "wait", "fail"]
POLICIES = ["best-effort", "best-effort", "none", "single-numa-node", "single-numa-node", "restricted"]
WHICH = st.integers(0, 7)
"""Which of the pods that may be meant."""
CPUS = st.sampled_from(["1", "2", "3", "3", "4", "5", "500m"])
MOST = 7
"""Pods that live at once."""
ERRORS = [errno.EBUSY, errno.EACCES, errno.EINVAL, errno.ENOSPC, errno.EIO]
NOTES = [
    {"numalign.io/pin": "false"}, {"numalign.io/pin": "true"}, {"numalign.io/on-misalignment": "wait"},
    {"numalign.io/on-misalignment": "fail"}, {"numalign.io/policy": "none"}, {"kubernetes.io/config.source": "file"},
    {"numalign.io/cpu-options": "full-pcpus-only=true"}, {"numalign.io/align": "numa"},
]  # fmt: skip
CHANGES: list[dict[str, Any]] = [
    {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, {"cpuManagerPolicyOptions": {}},
    {"topologyManagerPolicy": "single-numa-node"}, {"topologyManagerPolicy": "best-effort"},
    {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]},
    {"memoryManagerPolicy": "None", "reservedMemory": []}, {"onMisalignment": "wait"}, {"onMisalignment": "run"},
]  # fmt: skip
QOS = {"own": "Guaranteed", "whole": "Burstable", "shares": "Burstable", "nothing": "BestEffort"}


def _made(pod: Bound) -> bool:
    """Whether the kubelet has nothing more to make of it."""
    return pod.accepted is not None and bool(pod.sandbox_path) and all(each.path or each.done for each in pod.boxes)


def _live(pod: Bound) -> bool:
    return pod.there and pod.phase not in ENDED


def _waits(pod: Bound) -> bool:
    return _live(pod) and pod.accepted is not False and not _made(pod)


def _runs(pod: Bound) -> bool:
    return _live(pod) and pod.living


def _sized(pod: Bound) -> bool:
    return _live(pod) and pod.boxes[-1].cpu > 0


def _crashable(pod: Bound) -> bool:
    return _live(pod) and bool(pod.boxes[-1].path)


def _empty(pod: Bound) -> bool:
    return not pod.living and not _live(pod) and pod.folder


def _orphan(pod: Bound) -> bool:
    return not pod.there and pod.living


roomy = precondition(lambda self: self.has_room())
STEPS = st.sampled_from([5, 5, 5, 0, 1, 2])
"""Of a kubelet that takes a pod, makes its sandbox and its containers: five are all."""


def event(**chosen: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """A rule that writes down what happened, for a walk that cannot be walked again: threads take their turns."""

    def of(work: Callable[..., None]) -> Any:  # noqa: ANN401 - what hypothesis makes of it
        @functools.wraps(work)
        def done(self: Walk, **found: Any) -> None:  # noqa: ANN401 - of several types
            self.past.append(f"{work.__name__}({', '.join(f'{name}={each!r}' for name, each in found.items())})")
            work(self, **found)

        made: Any = rule
        return made(**chosen)(done)

    return of


def some(fits: Callable[[Bound], bool]) -> Callable[[Any], Any]:
    """Of a rule: there is a pod that it is for."""
    return precondition(lambda self: any(fits(each) for each in self.node.pods.values()))


class Walk(RuleBasedStateMachine):
    """One node, and what befalls it."""

    node: Node

    def __init__(self) -> None:
        super().__init__()
        self.past: list[str] = []
        self.faults: dict[str, tuple[int, Callable[[], None]]] = {}
        """What is wrong for a while: steps that are left, and how it ends."""
        self.left = ExitStack()
        self.folder = self.left.enter_context(in_memory.folder("walk-"))

    @initialize(
        layout=st.sampled_from(["v2", "v2", *LAYOUTS]), machine=st.sampled_from([MACHINES[0], *MACHINES]),
        policy=st.sampled_from(POLICIES), wish=st.sampled_from(WISHES), nri=st.booleans(),
        pods=st.lists(
            st.tuples(st.sampled_from(["own", "own", "whole", "shares"]), CPUS, st.booleans()), min_size=1, max_size=4
        ),
    )  # fmt: skip
    def begin(
        self, layout: str, machine: str, policy: str, wish: str, pods: list[tuple[str, str, bool]], *, nri: bool
    ) -> None:
        """A node of a kind, with an agent that has read the first list, and pods that run."""
        settings = {
            "kubeReserved": {"cpu": "1"}, "topologyManagerPolicy": policy, "onMisalignment": wish,
            "exclusiveNamespaces": ["*"],
        }  # fmt: skip
        self.node = Node(self.folder / "cgroup", layout, machine, settings, nri=nri)
        self.past.append(f"begin({layout=}, {machine=}, {policy=}, {wish=}, {nri=}, {pods=})")
        for kind, cpu, old in pods:
            self.pod_comes(kind, cpu, old=old, steps=5)

    def teardown(self) -> None:
        if hasattr(self, "node") and self.node.alive:
            self.node.kill()
        self.left.close()

    @invariant()
    def right(self) -> None:
        """Nothing is wrong, says the judge."""
        if not hasattr(self, "node"):
            return
        self.faults = {what: (steps - 1, mend) for what, (steps, mend) in self.faults.items()}
        for what in [what for what, (steps, _) in self.faults.items() if steps < 0]:
            self.faults.pop(what)[1]()
        self.node.settle()
        wrong = list(self.node.judge.wrong(self.node.scene()))
        assert not wrong, "\n".join(["; ".join(wrong), *self.past])

    def one(self, which: int, fits: Callable[[Bound], bool]) -> Bound:
        """One of the pods that may be meant, the latest first."""
        found = [each for each in self.node.pods.values() if fits(each)][::-1]
        return found[which % len(found)]

    # ---- pods

    def has_room(self) -> bool:
        return sum(map(_live, self.node.pods.values())) < MOST

    @roomy
    @event(
        kind=st.sampled_from(["own", "own", "whole", "shares", "nothing"]), cpu=CPUS,
        init=st.sampled_from(["", "", "1", "3"]), space=st.sampled_from(["a", "a", "b", SYSTEM]),
        note=st.sampled_from([{}, *NOTES]), old=st.booleans(), steps=STEPS,
    )  # fmt: skip
    def any_pod_comes(
        self, kind: str, cpu: str, init: str, space: str, note: dict[str, str], steps: int, *, old: bool
    ) -> None:
        """A scheduler binds a pod of any kind."""
        self.pod_comes(kind, cpu, init=init, space=space, note=note, old=old, steps=steps)

    @roomy
    @event(cpu=CPUS, steps=STEPS)
    def own_pod_comes(self, cpu: str, steps: int) -> None:
        """A scheduler binds a pod that asks for CPUs of its own."""
        self.pod_comes("own", cpu, steps=steps)

    @roomy
    @event(cpu=CPUS, steps=st.integers(0, 3))
    def pod_names_its_node(self, cpu: str, steps: int) -> None:
        """The author of a pod sets spec.nodeName: no scheduler has looked whether it fits."""
        self.pod_comes("own", cpu, by="name", steps=steps)

    def pod_comes(
        self, kind: str, cpu: str, *, by: str = "scheduler", init: str = "", space: str = "a",
        note: dict[str, str] | None = None, old: bool = False, steps: int = 0,
    ) -> None:  # fmt: skip
        """A pod is bound to this node, by the scheduler where there is room, or by its author."""
        node = self.node
        uid, note = f"p{node.count}", note or {}
        app = container("app", cpu)
        if kind == "whole":
            app["resources"]["requests"] = {**app["resources"]["limits"], "memory": "32Mi"}
            note = {**note, "numalign.io/exclusive": "auto"}
        elif kind == "shares":
            app["resources"] = {"requests": {"cpu": cpu}}
        elif kind == "nothing":
            app["resources"] = {}
        if kind in ("own", "whole"):
            app["resources"].setdefault("requests", dict(app["resources"]["limits"]))
        inits = [container("init", init)] if init and kind == "own" else []
        body = manifest(uid, app, inits=inits, created=node.count, namespace=space)
        body["metadata"]["annotations"] |= note
        body["spec"]["nodeName"] = "n"
        body["status"] = {"phase": "Pending", "qosClass": QOS[kind]}
        milli = 0 if kind == "nothing" else amount(cpu)
        if by == "scheduler":
            if milli > node.room():
                return
            body["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        boxes = [Box("app", milli)]
        if inits:
            boxes.insert(0, Box("init", amount(init), init=True))
        pod = Bound(
            uid, body, boxes, scheduled=by == "scheduler", old=old, said={each.name: each.cpu for each in boxes}
        )
        node.count += 1
        node.pods[uid] = pod
        node.tell(pod)
        for _ in range(steps):
            self._step(pod)

    @some(_waits)
    @event(which=WHICH, steps=st.integers(1, 4))
    def kubelet_goes_on(self, which: int, steps: int) -> None:
        """The kubelet takes a pod, makes its sandbox and its containers."""
        pod = self.one(which, _waits)
        for _ in range(steps):
            self._step(pod)

    def _step(self, pod: Bound) -> None:
        self.node.settle()
        if pod.accepted is None:
            self.node.accept(pod)
        elif pod.accepted and pod.phase not in ENDED:
            init = next((each for each in pod.boxes if each.init and each.path), None)
            if init is not None:
                self.node.stop(pod, init)
            self.node.start(pod)

    @some(_runs)
    @event(which=WHICH, folder=st.booleans(), comes=st.booleans(), fast=st.booleans())
    def job_ends(self, which: int, *, folder: bool, comes: bool, fast: bool) -> None:
        """All containers of a pod have ended; its cgroup goes at once or later. The next pod of its Job may come."""
        pod = self.one(which, _runs)
        self.node.end(pod, folder=folder)
        pod.body["status"]["phase"] = "Succeeded"
        self.node.status(pod)
        box = pod.boxes[-1]
        if comes and box.cpu and QOS["own"] == pod.body["status"]["qosClass"]:
            cpu = f"{box.cpu}m" if box.cpu % 1000 else str(box.cpu // 1000)
            self.pod_comes("own", cpu, old=pod.old, steps=5 if fast else 0)

    @some(_empty)
    @event(which=WHICH)
    def folder_goes(self, which: int) -> None:
        """The kubelet removes the cgroup of a pod that has ended."""
        self.node.end(self.one(which, _empty))

    @some(lambda each: each.there)
    @event(which=WHICH, how=st.sampled_from(["grace", "grace", "force", "API"]))
    def deleted(self, which: int, how: str) -> None:
        """A pod is deleted: its processes end first, or live on for a while where it was forced."""
        pod = self.one(which, lambda each: each.there)
        if how != "force":
            self.node.end(pod, folder=how == "grace")
        self.node.gone(pod)

    @some(_orphan)
    @event(which=WHICH)
    def killed_at_last(self, which: int) -> None:
        """The processes of a pod that is gone end."""
        self.node.end(self.one(which, _orphan))

    @precondition(lambda self: any(self._fails(each) for each in self.node.pods.values()))
    @event(which=WHICH)
    def carried_out(self, which: int) -> None:
        """A pod that was refused, and whose wish is to fail, is ended by the kubelet."""
        pod = self.one(which, self._fails)
        pod.body["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
        self.node.status(pod)

    def _fails(self, pod: Bound) -> bool:
        known, node = self.node.engine.snapshot.pods.get(pod.uid), self.node.settings["onMisalignment"]
        wish = pod.body["metadata"]["annotations"].get("numalign.io/on-misalignment", node)
        return known is not None and known.refusal is not None and _live(pod) and not pod.living and wish == "fail"

    @some(_sized)
    @event(which=WHICH, cpu=CPUS, note=st.sampled_from([{}, {}, *NOTES]))
    def resized(self, which: int, cpu: str, note: dict[str, str]) -> None:
        """A resize that the kubelet follows, where it has room; its author may annotate the pod before."""
        pod = self.one(which, _sized)
        if note:
            pod.body["metadata"]["annotations"] |= note
            self.node.tell(pod)
            self.node.settle()
        self.followed(pod, cpu)

    @some(_sized)
    @event(which=WHICH, cpu=CPUS)
    def resize_is_refused(self, which: int, cpu: str) -> None:
        """A resize that the API server takes, and the kubelet calls infeasible, or defers for ever."""
        pod = self.one(which, _sized)
        self.asks(pod, cpu)
        if pod.accepted:
            self.node.status(pod)

    def followed(self, pod: Bound, cpu: str) -> None:
        """A pod asks for another amount, and gets it from the kubelet where that has room."""
        if not pod.boxes[-1].cpu:
            return
        fits = amount(cpu) - pod.boxes[-1].cpu <= self.node.room()
        self.asks(pod, cpu)
        if pod.accepted and fits:
            pod.boxes[-1].cpu = amount(cpu)
            self.node.status(pod)

    def asks(self, pod: Bound, cpu: str) -> None:
        for each in pod.body["spec"]["containers"][0]["resources"].values():
            each["cpu"] = cpu
        self.node.tell(pod)
        self.node.settle()

    @some(_crashable)
    @event(which=WHICH, again=st.booleans())
    def crashes(self, which: int, *, again: bool) -> None:
        """A container ends, and the kubelet makes it once more, now or later."""
        pod = self.one(which, _crashable)
        self.node.stop(pod, pod.boxes[-1], again=True)
        self.node.status(pod)
        self.node.settle()
        if again:
            self.node.make(pod, pod.boxes[-1])

    @some(_live)
    @event(which=WHICH, note=st.sampled_from(NOTES))
    def annotated(self, which: int, note: dict[str, str]) -> None:
        """A tenant annotates a pod."""
        pod = self.one(which, _live)
        pod.body["metadata"]["annotations"] |= note
        self.node.tell(pod)

    # ---- the agent and its surroundings

    def lasts(self, what: str, steps: int, mend: Callable[[], None]) -> None:
        """A fault began, and is over after so many steps."""
        self.faults[what] = (steps, mend)

    @event(
        lost=st.booleans(), api=st.booleans(), less=st.booleans(), pin=st.sampled_from([True, True, False]),
        steps=st.sampled_from([0, 0, 0, 2]), size=st.sampled_from(["", "1", "3", "4"]),
    )  # fmt: skip
    def agent_is_killed(self, *, lost: bool, api: bool, less: bool, pin: bool, steps: int, size: str = "") -> None:
        """It begins again at once or later, with its ledger or without, with the API server or before it answers.

        The machine may have less memory then, as after an update of its kernel, and a pod another size.
        """
        node = self.node
        if node.alive:
            node.kill()
        node.less += less
        if size and any(map(_crashable, node.pods.values())):
            self.followed(self.one(0, _crashable), size)

        def begins() -> None:
            if not node.alive:
                node.api, node.pin_adopted = api, pin
                node.begin(checkpoint=not lost)
                node.api = True

        if steps:
            self.lasts("away", steps, begins)
        else:
            begins()

    @event(
        state=st.sampled_from(["full", "read-only", "hangs"]), steps=st.integers(1, 8), less=st.booleans(),
        comes=st.booleans(),
    )  # fmt: skip
    def disk(self, state: str, steps: int, *, less: bool, comes: bool = False) -> None:
        """The disk of the state folder is full, read-only, or hangs; the machine may have less memory meanwhile.

        A pod may come then that needs no CPUs of its own.
        """
        store = self.node.store

        def mend() -> None:
            store.full = ""
            store.free.set()

        mend()
        if state == "hangs":
            store.free.clear()
        else:
            store.full = state
        self.lasts("disk", min(steps, 4) if state == "hangs" else steps, mend)
        if less and state != "hangs":
            self.node.less += 1
            self.node.changed()
        if comes and self.has_room():
            self.pod_comes("own", "500m", steps=5)

    @event(change=st.sampled_from([*CHANGES, {}, {}, {}]), cpu=st.sampled_from([0, 0, 1, 2, 5]))
    def node_changes(self, change: dict[str, Any], cpu: int) -> None:
        """Other settings; or the kernel says another MemTotal, and a CPU is offline now, or none any more."""
        node = self.node
        if not change and node.store.free.is_set():
            node.less += 1
            text = node.text.partition(", offline")[0]  # on v1 the kubelet's own cgroup would lack it for good
            node.text = f"{text}, offline {cpu}" if cpu and node.layout.version == 2 else text
            node.machine = parse_synthetic(node.text)
            node.tree.online(node.machine.online)
        node.changed(**change)

    @event(
        what=st.sampled_from(["writer", "kernel", "kernel", "late", "away", "runtime", "namespace"]),
        error=st.sampled_from(ERRORS), where=st.sampled_from(["burstable", "besteffort", "p1", "p0", ""]),
        steps=st.integers(1, 5),
    )  # fmt: skip
    def surroundings(self, what: str, error: int, where: str, steps: int) -> None:
        """Something around the agent is wrong for a while."""
        if what == "kernel":
            self.kernel(error, where, steps)
        elif what in ("late", "away"):
            self.watch_is(what, steps)
        elif what == "namespace":
            self.node.spaces["a"] = {"numalign.io/on-misalignment": "wait"}
            self.lasts("namespace", steps, self.node.spaces.clear)
        else:
            {"writer": self.other_writer, "runtime": self.runtime_is_away}[what](steps)

    def other_writer(self, steps: int) -> None:
        """Another writer of cpusets is found, and is gone a while later."""

        def writes(*, on: bool) -> None:
            if self.node.able:
                self.node.engine.switch(observe_only=on, why="a plugin writes cpusets" if on else "")

        writes(on=True)
        self.lasts("writer", steps, lambda: writes(on=False))

    def kernel(self, error: int, where: str, steps: int) -> None:
        """The kernel refuses the agent's writes somewhere for a while."""
        self.node.world.kernel.refuse(error, path=where)
        self.lasts("kernel", steps, lambda: self.node.world.kernel.mend())  # noqa: PLW0108 - of the agent of then

    def watch_is(self, state: str, steps: int) -> None:
        """The watch brings news late, or not at all until it lists anew."""
        node = self.node
        if state == "away":
            node.stream = []

        def mend() -> None:
            anew, node.watch = node.watch == "away", "up"
            if anew and node.alive:
                node.relist()

        node.watch = "away" if node.watch == "away" else state
        self.lasts("watch", steps, mend)

    def runtime_is_away(self, steps: int) -> None:
        """The runtime asks the agent nothing, as one that never synchronises it; then it takes the agent in."""
        node = self.node

        def mend() -> None:
            node.nri = True
            if node.alive:
                node.synchronize()

        node.nri = False
        self.lasts("runtime", steps, mend)

    @precondition(lambda self: self.node.asked)
    @event(
        cpu=CPUS, how=st.sampled_from(["gone", "gone", "lives"]), steps=st.integers(2, 4),
        delivered=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def runtime_is_quicker(self, cpu: str, how: str, steps: int, *, delivered: bool) -> None:
        """A pod starts before the watch brings it, while the thread for the runtime's news is busy; it may go."""
        node, before = self.node, self.node.watch
        node.settle()
        node.watch = "late" if before == "up" else before
        node.busy.go.clear()
        node.decisions.containers_named({"f" * 64: ("no pod", "app")})
        count = node.count
        self.pod_comes("own", cpu, steps=steps)
        pod = node.pods.get(f"p{count}")
        node.watch = before
        if delivered:
            node.settle()
        if pod is not None and how == "gone":
            node.end(pod)
            node.gone(pod)
            node.settle()
        node.busy.go.set()

    @event(seconds=st.sampled_from([1, 15, 70, 700]))
    def time_passes(self, seconds: int) -> None:
        """Seconds of the agent's clock."""
        self.node.now += seconds


def begun(
    walk: Walk, *pods: tuple[str, str, bool], policy: str = "best-effort", wish: str = "run", nri: bool = True
) -> None:
    """A node of two sockets with pods that run."""
    walk.begin(layout="v2", machine=MACHINES[0], policy=policy, wish=wish, pods=list(pods), nri=nri)
    walk.right()


def then(walk: Walk, event: Callable[..., None], **found: Any) -> None:  # noqa: ANN401 - of several types
    """The next step of a walk."""
    event(**found)
    walk.right()
