"""What settings come to on a machine and do not say themselves: one sentence each. Pure.

Used by `agent.app.setup`; told in the agent's log, by `run`, `simulate`, `explain`, `plan` and `config check --root`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.machine import Machine
from agent.model.quantity import show_bytes, units
from agent.settings.from_node import derives_memory, derives_sum, reserved_on_nodes
from agent.settings.kinds import CpuPolicy
from agent.settings.model import Settings
from agent.settings.reserved_cpus import small_machine

NO_CPUS = (
    "cpuManagerPolicy is none: no pod gets CPUs of its own; for numalign to grant them, write static or leave it out"
)


def remarks(
    settings: Settings, filled: Settings, machine: Machine, node_reserved: int = 0, *, memory: int = 0
) -> Iterator[str]:
    """The sentences.

    Args:
        settings: as parsed.
        filled: the same with what follows from the Node.
        machine: the hardware.
        node_reserved: thousandths of a CPU that the kubelet keeps from pods, 0 when not known.
        memory: bytes that the kubelet keeps from pods, 0 when not known.
    """
    if settings.cpu_manager_policy is CpuPolicy.NONE:
        yield NO_CPUS
    if said := small_machine(settings, machine, node_reserved):
        yield said
    if derives_memory(settings) and not memory and filled.reserved_memory:
        parts = ", ".join(
            f"{show_bytes(units(each.limits['memory']))} on NUMA node {each.numa_node}"
            for each in filled.reserved_memory
        )
        yield f"reservedMemory is not set: on a node it follows from the Node's allocatable memory; here: {parts}"
    total = reserved_on_nodes(settings)
    if derives_sum(settings) and not memory:
        yield (
            f"reservedMemory comes to {show_bytes(total)}: not compared, since the settings have no kubeReserved and "
            "systemReserved for memory"
        )
    elif derives_sum(settings) and memory != total:
        yield (
            f"reservedMemory comes to {show_bytes(total)}, and the Node's capacity less allocatable is "
            f"{show_bytes(memory)}: make them equal"
        )
