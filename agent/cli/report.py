"""What `numalign run` prints: the machine in one sentence, the two tables, and honest words on who says what."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from agent.app.page.views import NodeView
from agent.app.standalone.standalone import Standalone
from agent.cli import show
from agent.model.machine import Machine


def print_report(
    node: Standalone, view: NodeView, wrong: list[str], target: Console | None = None, *, foot: bool = True
) -> None:
    """Print it to standard output, or to another console; `foot` adds where things are and who says so."""
    target = target or show.console()
    show.sentences(target, head(node), "bold")
    show.pods_grid(view, target.width).print(target)
    show.nodes_grid(view, target.width).print(target)
    show.sentences(target, _foot(node) if foot else ())
    show.sentences(target, (f"wrong manifest, not served: {each}" for each in wrong), "red")


def head(node: Standalone) -> Iterator[str]:
    """The machine, and what is in force."""
    settings = node.setup.settings
    yield machine_sentence(node.setup.machine)
    yield (
        f"CPU manager {settings.cpu_manager_policy}, memory manager {settings.memory_manager_policy}, "
        f"topology {settings.topology_manager_policy} per {settings.topology_manager_scope}, "
        f"a pod that cannot be aligned: {settings.on_misalignment}"
    )


def machine_sentence(machine: Machine) -> str:
    """CPUs, nodes, memory, devices."""
    memory = sum(each.memory for each in machine.nodes)
    pages = sum(size * count for each in machine.nodes for size, count in each.hugepages)
    huge = f" ({show.size(pages)} in huge pages)" if pages else ""
    nodes = f"{len(machine.nodes)} NUMA node{'s' if len(machine.nodes) != 1 else ''}"
    return (
        f"{machine.name}: {len(machine.cpus)} CPUs in {len(machine.packages)} sockets, {nodes}, "
        f"{show.size(memory)} memory{huge}, {len(machine.devices)} PCI functions"
    )


def _foot(node: Standalone) -> Iterator[str]:
    yield from (f"machine: {warning}" for warning in node.setup.machine.warnings)
    yield f"cpusets: {node.tree.where}; ledger: {node.store.path}"
    if node.runtime is None:
        return
    if node.runtime.processes is None:
        yield "no processes: this machine is recorded, its CPUs are not here"
    elif node.tree.real:
        yield "kernel says: Cpus_allowed_list of a process in each container's cgroup, confined by that cgroup alone"
    else:
        yield (
            "kernel says: Cpus_allowed_list of a process per container; a scratch tree has no kernel behind it, so "
            "each was put on its container's CPUs by sched_setaffinity"
        )
    if node.quarantined:
        yield node.quarantined
    kept = len(node.recovered.kept)
    if kept:
        yield f"{kept} pod{'s' if kept != 1 else ''} came from the saved ledger and kept what they had"
