"""The engine with its recovered ledger: from the checkpoint, the cgroups and the pods that are known at the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.app.reporters import Reporters
from agent.app.service.file_switch import FileSwitch
from agent.app.setup import Setup
from agent.app.statedir import recovery_report
from agent.app.statedir.loading import load, tell_answers
from agent.app.statedir.metered_store import CountedStore
from agent.core.machines.in_force import within
from agent.engine.engine import Engine
from agent.engine.ports import Steps
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint
from agent.host.node_memory import NodeMemory
from agent.model.cgroup import Level
from agent.model.pod import Pod
from agent.node.adopt import AnnotatedGrant
from agent.node.recover import Recovered, recover
from agent.node.tracked_pod import Exempt
from agent.observe.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class StartFacts:
    """What is known at a start beside checkpoint and cgroups.

    Attributes:
        pods: those that are not left alone.
        names: container id -> (pod uid, container name).
        words: the grants of an earlier agent that the pods carry, by uid.
    """

    pods: Sequence[Pod] = ()
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    words: Mapping[str, AnnotatedGrant] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Begun:
    """An engine that has reported nothing yet.

    Attributes:
        recovered: what its grants were made of.
        quarantined: why the checkpoint was put aside, "" when it was not.
        standing: containers that started while no agent ran, and may run on CPUs of other pods; one sentence each.
        ran: uids of the pods that had containers.
    """

    engine: Engine
    reporters: Reporters
    recovered: Recovered
    quarantined: str
    standing: tuple[str, ...]
    ran: frozenset[str]

    def tell(self) -> None:
        """Report what the start found, and save the engine's first state; no cgroup is written."""
        if self.quarantined:
            self.reporters.problem("checkpoint", self.quarantined)
        for text in self.recovered.untold:
            self.reporters.problem("devices", text)
        for text in self.standing:
            self.reporters.problem("standing", text)
        self.engine.inherit(self.recovered.before)
        self.engine.keep()


def begin(
    setup: Setup, known: StartFacts, *, state: Path, config: Path | None, store: Checkpoint, cgroups: Cgroups,
    reporters: Reporters, metrics: Metrics, memory: NodeMemory | None, exempt: Exempt, steps: Steps,
) -> Begun:  # fmt: skip
    """Recover, and make the engine.

    Args:
        setup: settings and machine.
        known: what else is known.
        state: the state folder, for the report of this start.
        config: the configuration file, for its kill switch.
        store: locked.
        cgroups: the tree.
        reporters: gets the findings when `tell` is called.
        metrics: saves are counted.
        memory: what NUMA nodes could still give; None where that cannot be read.
        exempt: which pods are left alone.
        steps: called between every two effects.

    Raises:
        HostError: the cgroups or the checkpoint cannot be read.
    """
    observed = cgroups.observe()
    node = setup.node.on(within(setup.machine, cgroups.in_force()))
    loaded = load(store, node, observed, known.pods)
    tell_answers(loaded.answers, setup.node.rules.answers)
    names = {**loaded.names, **known.names}
    found = recover(node, loaded.ledger, observed, names, known.pods, complete=loaded.complete, words=known.words)
    report = recovery_report.tell(state, found, loaded.aside, since=cgroups.since, saved=store.saved_at())
    engine = Engine(
        node, found.ledger, cgroups=cgroups, store=CountedStore(store, metrics), reporter=reporters,
        exempt=exempt, switches=setup.switches, steps=steps, saved=found.as_saved, complete=found.complete,
        room=memory.room if memory else None, halting=FileSwitch(config),
    )  # fmt: skip
    engine.names_at_start(names, {each.path for each in found.standing if not each.sandbox}, loaded.cut)
    ran = frozenset(each.pod_uid for each in observed.cgroups if each.level is Level.CONTAINER)
    return Begun(
        engine=engine, reporters=reporters, recovered=found, quarantined=loaded.aside, ran=ran,
        standing=report.standing,
    )  # fmt: skip
