"""What the crash tests share: lives of the agent, and what must be true of the files after any kill."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.app.setup import made
from agent.core.accounting import invariants
from agent.core.request.amounts import exclusive_count
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.host.machines import open_machine
from agent.host.manifests import read_folder
from agent.host.standin import container_id
from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.rules import Rules
from agent.settings import parse
from tests.matrix.agents import Agents

Grants = dict[str, dict[str, CpuSet]]


class Lives:
    """Begins lives of the agent (`tests.crash.life`), whose log and steps are in a folder."""

    def __init__(self, folder: Path) -> None:
        self._agents = Agents("tests.crash.life")
        self._files = {name: str(folder / name) for name in ("log", "tree", "steps")}

    def run(self, options: Mapping[str, Any], *, after: float | None = None, **order: float) -> dict[str, Any]:
        """One life: {"status": exit code or minus the signal, "steps": effects, "seconds": ...}.

        Args:
            options: of the agent.
            after: seconds after which it is killed.
            order: see `tests.crash.life`.
        """
        steps, began = Path(self._files["steps"]), time.monotonic()
        steps.write_text("0", "ascii")
        agent = self._agents.start({**self._files, "options": dict(options), **order})
        if after is not None:
            time.sleep(after)
            agent.signal(signal.SIGKILL)
        status = agent.wait()
        assert status in (0, -signal.SIGKILL), agent.words()
        return {"status": status, "steps": int(steps.read_text() or 0), "seconds": time.monotonic() - began}


class Node:
    """One node's files between two lives of the agent."""

    def __init__(self, folder: Path, machine: str) -> None:
        self.pods, self.state, self.machine = folder / "pods", folder / "state", machine
        self.pods.mkdir()
        self.options: dict[str, Any] = {"pods": str(self.pods), "state": str(self.state), "root": machine}
        self.setup = made(parse({"kubeReserved": {"cpu": "1"}})[0], open_machine(machine))
        config = folder / "config.yaml"
        config.write_text("kubeReserved: {cpu: '1'}\n", "utf-8")
        self.options["config"] = str(config)
        self.first: Grants = {}
        """What each pod was first saved with, as long as it is there."""

    def ledger(self) -> Ledger | None:
        """The saved ledger; fails on one that cannot be read or is not coherent."""
        saved = Checkpoint(self.state / "checkpoint.json").load(self.setup.machine.digest)
        if saved is None:
            return None
        invariants.check(saved.ledger, self.setup.node)
        return saved.ledger

    def check(self) -> None:
        """After any kill: the ledger is whole, nothing moved, and no cgroup has more than was saved for it."""
        ledger = self.ledger()
        held: Grants = {uid: dict(each) for uid, each in ledger.cpus.assigned.items()} if ledger is not None else {}
        here = {pod.uid: pod for pod in read_folder(self.pods).pods}
        for uid, grants in self.first.items():
            if uid in here:
                kept = {name: cpus for name, cpus in held.get(uid, {}).items() if name != "init"}
                assert kept == grants, f"{uid} moved"
        self.first = {
            uid: {name: cpus for name, cpus in grants.items() if name != "init"} for uid, grants in held.items()
        }
        if not (self.state / "cgroup").is_dir() or ledger is None:
            return
        containers = {
            container_id(uid, each.name): (uid, each)
            for uid, record in ledger.pods.items()
            for each in record.pod.containers
        }
        for cgroup in Cgroups(self.state / "cgroup").observe().cgroups:
            if cgroup.level is Level.CONTAINER and cgroup.container_id in containers:
                uid, each = containers[cgroup.container_id]
                count = exclusive_count(ledger.pods[uid].pod, each, Rules())
                if count and len(cgroup.cpus) == count:
                    assert cgroup.cpus == held.get(uid, {}).get(each.name, cgroup.cpus), f"{uid} is not as saved"

    def check_settled(self) -> None:
        """After a life that ended well: every pod has its CPUs in the kernel, nothing leaked, nobody overlaps."""
        self.check()
        ledger = self.ledger()
        assert ledger is not None
        here = {pod.uid: pod for pod in read_folder(self.pods).pods}
        assert set(ledger.pods) == set(here)
        seen: dict[int, str] = {}
        observed = Cgroups(self.state / "cgroup").observe()
        assert {cgroup.pod_uid for cgroup in observed.cgroups if cgroup.pod_uid} == set(here)
        names = {
            container_id(uid, each.name): (uid, each.name) for uid, pod in here.items() for each in pod.containers
        }
        for cgroup in observed.cgroups:
            if cgroup.level is not Level.CONTAINER:
                continue
            uid, name = names[cgroup.container_id]
            own = ledger.grant(uid, name).cpus
            assert cgroup.effective_cpus == (own or ledger.cpus.shared), f"{uid}/{name}"
            for cpu in own or ():
                assert cpu not in seen, f"CPU {cpu} is {seen.get(cpu)}'s and {uid}'s"
                seen[cpu] = uid
