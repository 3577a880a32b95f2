"""A node under test: a few pods that must not be moved, pods that come and go, and the agent that is killed.

Used by `test_faults.py` (each fault alone) and `test_soak.py` (all of them mixed).
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from agent.model.idset import CpuSet
from tests.cluster.control_plane import ApiError
from tests.lab import agent
from tests.lab.agreement import Look, disagreements, look, moved
from tests.lab.cluster import Lab
from tests.lab.needs import LabError, PromiseError
from tests.lab.node import Node
from tests.lab.pods import container, pod, resources
from tests.patience import until

Object = dict[str, Any]
OBSERVE = "numalign.io/observe-only"
RESERVED = CpuSet.of(0, 1)
"""As `tests.lab.node.STATIC` has them."""
STAY = {
    "stay-two": pod("stay-two", cpu="2"), "stay-one": pod("stay-one", cpu="1"),
    "stay-shared": pod("stay-shared", container(resources=resources("100m", "32Mi", limits={"memory": "48Mi"}))),
}  # fmt: skip
"""Pods that are there all the time: two with CPUs of their own, one that shares. That one has no limit of CPUs: with
a tenth of one, which an emulated processor loses to its host's other work, a container may take minutes to start."""
AGREED, RECOVERED = 120.0, 400.0
"""Seconds within which all must agree again; within which a killed agent must be back. That is 20 to 60 s in an
emulated machine that does nothing else, and was three minutes in one that started pods."""
PAUSE = 1.0
"""Seconds between two looks. A look starts ten processes in the guest, and the agent that is waited for pays."""
TCP = (OSError, TimeoutError, LabError)


class DisagreementError(PromiseError):
    """Somebody says something else, or a container was moved; the text has a line per sentence."""


@dataclass
class Stage:
    """One node.

    Attributes:
        lab, node: where.
        random: for what is chosen by chance.
        kills: of the agent so far.
        known: the node's pods as last listed, for the time when the API server is away.
        lost: CPUs that are away meanwhile.
        blind: nothing is asked of the API server: it would not answer.
        places: of the pod stay-two its {folder} and one {cpu}, of stay-shared its cgroup {shared}: for faults.
    """

    lab: Lab
    node: Node
    random: random.Random = field(default_factory=lambda: random.Random(1))
    kills: int = 0
    known: list[Object] = field(default_factory=list)
    lost: CpuSet = field(default_factory=CpuSet)
    blind: bool = False
    places: dict[str, str] = field(default_factory=dict)

    def fill(self) -> None:
        """Start the pods that stay; those that are there will do."""
        for name, body in STAY.items():
            with contextlib.suppress(ApiError):  # it is there already, or the wait fails
                self.lab.create(body, self.node)
            self.lab.wait_running(name)

    def renew(self, name: str) -> None:
        """One of the pods that stay is made anew: it lost something for good."""
        old = self.lab.pod(name)
        self.lab.delete(name)
        self.lab.wait_gone(old)
        self.fill()

    # ---- looking

    def look(self) -> Look:
        return look(self.node)

    def pods(self) -> list[Object]:
        """The node's pods; as last seen while the API server is away."""
        if not self.blind:
            with contextlib.suppress(OSError, ApiError):  # away: as last seen
                self.known = self.lab.pods(self.node)
        return self.known

    def agreed(self, within: float = AGREED, *, told: bool = True) -> Look:
        """Look until all agree; raises DisagreementError with what is left.

        Args:
            within: seconds.
            told: annotations count.
        """
        deadline = time.monotonic() + within
        while True:
            seen = self.look()
            left = disagreements(seen, self.pods(), RESERVED, told=told)
            if not left:
                return seen
            if time.monotonic() > deadline:
                raise DisagreementError("\n".join([*left, *self.words(20)]))
            time.sleep(PAUSE)

    def unmoved(self, before: Look, after: Look) -> None:
        """Raise DisagreementError where a container with CPUs of its own runs elsewhere than before."""
        found = moved(before, after, lost=self.lost)
        if found:
            raise DisagreementError("\n".join(found))

    def held(self, name: str, before: Look) -> CpuSet:
        assert before.ledger is not None
        for uid, record in before.ledger.pods.items():
            if record.pod.name == name:
                return CpuSet.union(before.ledger.cpus.assigned.get(uid, {}).values())
        return CpuSet()

    def folder(self, name: str) -> str:
        """The cgroup of a pod's only container, in the guest's file system."""
        (status,) = self.lab.pod(name)["status"]["containerStatuses"]
        number = status["containerID"].rpartition("/")[2]
        return self.node.run(f"find /sys/fs/cgroup/kubepods.slice -type d -name '*{number}*'").strip()

    # ---- the agent

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """The kill switch of the Node is on, and the agent knows; afterwards it is off, and the agent knows."""
        since = self.now()
        self._observe("true")
        try:
            self.said("the kill switch is on", since)
            yield
        finally:
            self._observe(None)
        self.said("the kill switch is off", since)

    def _observe(self, value: str | None) -> None:
        body = {"metadata": {"annotations": {OBSERVE: value}}}
        where = f"/api/v1/nodes/{self.node.name}"
        self.node.plane.call("PATCH", where, body, kind="application/merge-patch+json")

    def now(self) -> str:
        """The guest's clock, as the runtime writes it before each line of a container."""
        return self.node.run("date -u +%Y-%m-%dT%H:%M:%S.%N").strip()

    def words(self, lines: int, since: str = "", after: int = -1) -> list[str]:
        """What the agent's containers said last, or since then, or those after the one of that number."""
        told = self.node.run(
            f"for f in {LOGS}/*.log; do n=${{f##*/}}; [ ${{n%%.*}} -le {after} ] || cat $f; done 2>/dev/null | "
            f"sort | awk '$1 > \"{since}\"' | tail -n {lines}; true"
        )
        return told.splitlines()

    def said(self, pattern: str, since: str = "", within: float = RECOVERED, after: int = -1) -> str:
        """Wait until the agent said something; the line. Raises PromiseError with what it said instead."""
        return until(
            lambda: next((line for line in self.words(400, since, after) if re.search(pattern, line)), ""),
            lambda: "\n".join([f"/{pattern}/ in what the agent says; it said", *self.words(20, since, after)]),
            within=within, pause=PAUSE, fault=PromiseError,
        )  # fmt: skip

    def pids(self) -> list[int]:
        """Processes of the agent, as the host numbers them."""
        told = self.node.run(f"pgrep -f '{AGENT}'; true")
        return [int(each) for each in told.split()]

    def containers_of_agent(self) -> list[int]:
        """Numbers of the agent's containers that have a log: the last one runs."""
        told = self.node.run(f"ls {LOGS}").split()
        return [int(line.split(".")[0]) for line in told if line.endswith(".log")]

    def kill(self, then: str = "true", within: float = RECOVERED) -> int:
        """SIGKILL to the agent's process, as soon as there is one; the number of its container.

        What it wrote last may be read, and timed, after its end: the next one is told by its number.

        Args:
            then: a line of shell that comes before the next one starts.
            within: seconds.
        """
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            found = " ".join(map(str, self.pids()))
            # One that ended by itself is told by silence, and tried again; what cannot be done then raises.
            told = self.node.run(f"kill -KILL {found} || exit 0; {{ {then}; }} && ls {LOGS}") if found else ""
            numbers = [int(line.split(".")[0]) for line in told.split() if line.endswith(".log")]
            if numbers:
                self.kills += 1
                return max(numbers)
            time.sleep(0.1)
        raise PromiseError("there is no agent to kill; it said\n" + "\n".join(self.words(20)))

    def killed(self, then: str = "true") -> None:
        """Kill it, and wait until the next one has recovered; a line of shell comes before that starts."""
        self.said("recovered", after=self.kill(then))


LOGS = f"/var/log/pods/{agent.NAMESPACE}_*/agent"
AGENT = "^[^ ]*python[^ ]* [^ ]*/numalign run "


@dataclass
class Churn:
    """Pods that come and go in a thread of their own until `close`.

    Attributes:
        alive: names.
        most: how many at a time.
        pause: seconds between two steps. The next one waits for the last one's end, too: an emulated node, which
            needs many for a pod, shall be busy and not buried.
        counts: what was done.
    """

    stage: Stage
    most: int = 4
    pause: float = 2.0
    alive: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    trouble: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join(120)
        for name in self.alive:
            self.stage.lab.delete(name)
        if self.trouble:
            raise self.trouble[0]

    def _run(self) -> None:
        try:
            for step in self._steps():
                step()
                while not self._over.wait(self.pause) and self._busy():
                    pass
                if self._over.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised by the other thread
            self.trouble.append(error)

    def _steps(self) -> Iterator[Any]:
        chance = self.stage.random
        while True:
            full = len(self.alive) >= self.most
            yield self._end if self.alive and (full or chance.random() < 0.3) else self._begin

    def pods(self) -> list[Object]:
        """Those that the node has of them; while the API server is away as last seen."""
        return [each for each in self.stage.pods() if each["metadata"]["name"].startswith("churn-")]

    def _busy(self) -> bool:
        """Whether the node still starts or ends one of them."""
        found = self.pods()
        return any("deletionTimestamp" in each["metadata"] or each["status"]["phase"] == "Pending" for each in found)

    def _begin(self) -> None:
        chance, name = self.stage.random, f"churn-{self.counts['created']}"
        cpu = chance.choice(("1", "1", "2", "3", "500m"))
        body = pod(name, cpu=cpu, memory="32Mi")
        if chance.random() < 0.3:
            body["spec"]["containers"].append(container("side", cpu="500m", memory="16Mi"))
        if chance.random() < 0.2:
            body["spec"]["initContainers"] = [
                {**container("before", cpu="1", memory="16Mi"), "command": ["/bin/sleep", "1"]}
            ]
        if self._asked(lambda: self.stage.lab.create(body, self.stage.node)):
            self.counts["created"] += 1
            self.alive.append(name)

    def _end(self) -> None:
        name = self.stage.random.choice(self.alive)
        grace = self.stage.random.choice((None, None, 0))
        if self._asked(lambda: self.stage.lab.delete(name, grace=grace)):
            self.counts["forced" if grace == 0 else "ended"] += 1
            self.alive.remove(name)

    def _asked(self, call: Any) -> bool:  # noqa: ANN401 - any request
        """Whether the API server took it; while it is away nothing is done."""
        try:
            call()
        except ApiError as error:
            return error.status == 409  # it was taken, and nobody said so
        except TCP:
            return False
        return True
