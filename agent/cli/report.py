"""What `numalign run` prints: the machine in one sentence, the two tables, and the source of each statement."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from agent.app.page.views import NodeView, notes_of
from agent.app.standalone.build import StandaloneService
from agent.cli import show
from agent.cli.output import many
from agent.core.machines.identity import differs
from agent.host.manifests import SUFFIXES
from agent.model.machine import Machine
from agent.model.rules import OnMisalignment

MOST_NOTES = 10
"""Notes on pods below the tables."""
_FATES = {
    OnMisalignment.RUN: "runs unpinned",
    OnMisalignment.WAIT: "waits for room",
    OnMisalignment.FAIL: "does not run",
    OnMisalignment.EVICT: "is evicted",
}
"""What becomes of a pod that does not fit."""


def print_report(
    node: StandaloneService, view: NodeView, wrong: list[str], target: Console | None = None, *, foot: bool = True
) -> None:
    """Print it to standard output, or to another console; `foot` adds where things are and the source."""
    target = target or show.console()
    show.sentences(target, head(node), "bold")
    show.sentences(target, (f"wrong manifest, not served: {each}" for each in wrong), "red")
    if not node.source.folder.files:
        empty = f"no pods: no manifest ({', '.join(SUFFIXES)}) is in {node.source.served.path}"
        show.sentences(target, [empty], "red")
    large = sorted((pod, why) for pod, why in node.source.large.items() if why)
    show.sentences(target, (f"not served, too large: {pod}: {why}" for pod, why in large), "red")
    show.pods_grid(view, target.width).print(target)
    show.nodes_grid(view, target.width).print(target)
    show.sentences(target, _foot(node, view) if foot else ())


def head(node: StandaloneService) -> Iterator[str]:
    """The machine, and what is in force."""
    settings = node.setup.now.settings
    yield machine_sentence(node.setup.now.machine)
    yield (
        f"CPU manager {settings.cpu_manager_policy}, memory manager {settings.memory_manager_policy}, "
        f"topology {settings.topology_manager_policy} per {settings.topology_manager_scope}, "
        f"onMisalignment: {settings.on_misalignment} "
        f"(a pod that does not fit {_FATES[settings.on_misalignment]})"
    )


def machine_sentence(machine: Machine) -> str:
    """CPUs, nodes, memory, devices."""
    memory = sum(each.memory for each in machine.nodes)
    pages = sum(size * count for each in machine.nodes for size, count in each.hugepages)
    huge = f" ({show.size(pages)} in huge pages)" if pages else ""
    nodes = many(sum(node.online for node in machine.nodes), "NUMA node")
    return (
        f"{machine.name}: {many(len(machine.cpus), 'CPU')} in {many(len(machine.packages), 'socket')}, {nodes}, "
        f"{show.size(memory)} memory{huge}, {many(len(machine.devices), 'PCI function')}"
    )


def next_command(view: NodeView, program: str, *, state: Path, root: str | None, config: Path | None) -> str:
    """The command that explains a pod of this run, for a shell; "" without pods.

    It is the first pod that does not run, else the first that does not fit, else the first.

    Args:
        view: what the pods got.
        program: how numalign is called.
        state: the run's --state-dir.
        root: its --root, None for this machine.
        config: its --config, None for the defaults.
    """
    rows = sorted(view.rows, key=lambda row: (row.state != "refused", row.state != "shared" or not row.why))
    if not rows:
        return ""
    name = rows[0].pod.partition("/")[2]
    alike = {row.pod for row in rows if row.pod.endswith(f"/{name}")}
    words = [program, "explain", name if len(alike) == 1 else rows[0].pod, "--state-dir", str(state)]
    words += ["--root", root] if root else []
    words += ["--config", str(config)] if config else []
    return shlex.join(words)


def _foot(node: StandaloneService, view: NodeView) -> Iterator[str]:
    yield from (f"note: {text}" for text in node.setup.now.remarks)
    yield from _notes(node)
    yield from (f"machine: {warning}" for warning in node.setup.now.machine.warnings)
    if node.setup.now.machine.isolated:
        apart = node.engine.node.cpu_provider().apart
        pool = "in no shared pool" if apart else "CPUs like any other here"
        yield f"CPUs {node.setup.now.machine.isolated} are isolated by the kernel's command line: {pool}"
    before = node.source.recovered.before
    if before is not None and differs(before, {}, node.setup.now.machine) is None:
        yield "the ledger of an earlier run was of another machine: what does not fit here is dropped; see --afresh"
    yield f"cpusets: {node.source.tree.where}"
    yield f"ledger: {node.source.store.path}"
    if node.source.runtime is None:
        return
    if node.source.runtime.processes is None:
        yield "nothing was started: this machine is only described"
    elif node.source.tree.real:
        yield "kernel says: Cpus_allowed_list of a process in each container's cgroup, confined by that cgroup alone"
    else:
        yield (
            "kernel says: Cpus_allowed_list of a process per container; a scratch tree has no kernel behind it, so "
            "each was put on its container's CPUs by sched_setaffinity"
        )
    if node.source.quarantined:
        yield node.source.quarantined
    yield from _kept(node)
    yield from _too_small(view, sum(1 for why in node.source.large.values() if why))


def _notes(node: StandaloneService) -> Iterator[str]:
    """What pods ask for that is not followed as they wrote it."""
    folder = node.source.folder
    found = notes_of(node.engine.pods, node.engine.ledger, node.engine.node, folder.claimants)
    yield from (f"note: {each}" for each in node.source.odd())
    yield from (f"note: {pod}: {text}" for pod, text in found[:MOST_NOTES])
    if len(found) > MOST_NOTES:
        yield f"note: and {len(found) - MOST_NOTES} more; numalign explain POD says them"


def _kept(node: StandaloneService) -> Iterator[str]:
    """Say which pods of the saved ledger hold the same now: another manifest is another pod."""
    before, now = node.source.recovered.before, node.engine.ledger
    kept = [
        uid
        for uid in node.source.recovered.kept
        if uid in now.pods
        and before is not None
        and all(before.grant(uid, each.name) == now.grant(uid, each.name) for each in now.pods[uid].pod.containers)
    ]
    if kept:
        pods = "1 pod has" if len(kept) == 1 else f"{len(kept)} pods have"
        yield f"{pods} what an earlier run gave, whatever the settings are now; --afresh forgets that run"


def _too_small(view: NodeView, large: int) -> Iterator[str]:
    """A machine on which most pods do not fit shows little of what numalign does."""
    states = {row.uid: row.state for row in view.rows if row.state == "aligned"}
    misfits = {row.uid for row in view.rows if row.state == "refused" or (row.state == "shared" and row.why)}
    count, every = len(misfits) + large, len({row.uid for row in view.rows}) + large
    if count > len(states):
        yield (
            f"{count} of {many(every, 'pod')} {'is' if count == 1 else 'are'} not placed as asked: the table says "
            "why; on a larger machine: --root two-sockets, or make run MACHINE=two-sockets"
        )
