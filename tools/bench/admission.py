"""`python -m tools.bench.admission`: one whole admission timed against the kubelet's managers, in the same run.

The machine is the oracle's: 8 NUMA nodes, 256 CPUs, 64 GiB and a GPU each; the pod is one Guaranteed container of 8
CPUs and 16 GiB, with and without a GPU. Go's figure includes its state files, so ours is given twice: the decision
with the invariants checked after it, and that with the ledger saved (written, synced, renamed, folder synced). Then
ours alone on machines that the kubelet does not finish on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import click

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.host.checkpoint import Checkpoint
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Compatibility, CpuRules, MemoryRules, Policy, Rules, TopologyRules
from tests.peers.oracle import NoOracleError, bench, oracle

GPU = "example.com/gpu"
GOAL_MS = 5.0  # median, 8 nodes, 256 CPUs, with a device
ROUNDS = 300
WIDE = (
    ("16 nodes, 512 CPUs", "2 sockets x 8 nodes x 16 cores x 2 threads, 64G per node"),
    ("32 nodes, 1024 CPUs", "4 sockets x 8 nodes x 16 cores x 2 threads, 64G per node"),
    ("64 nodes, 2048 CPUs", "8 sockets x 8 nodes x 16 cores x 2 threads, 64G per node"),
)


def node_of(
    description: str, policy: Policy, *, gpus: bool, compatibility: Compatibility, kept: Sequence[int] = (0,)
) -> Node:
    """The managers of a described machine; one GPU per NUMA node. The cores of some positions are reserved."""
    machine = parse_synthetic(description)
    found = tuple(Device(f"gpu-{each.id}", NodeSet.of(each.id)) for each in machine.nodes) if gpus else ()
    first, reserved = machine.nodes[0].id, CpuSet.from_ids(cpu for core in kept for cpu in machine.cores[core])
    rules = Rules(
        topology=TopologyRules(policy, max_nodes=max(8, len(machine.nodes))),
        cpu=CpuRules(reserved=reserved, reserved_count=len(reserved)),
        memory=MemoryRules(static=True, reserved={first: {"memory": 1 << 30}}),
        compatibility=compatibility,
    )
    return Node(machine, rules, DeviceInventory({GPU: found} if found else {}))


def pod(number: int, *, gpus: bool, cpus: int = 8) -> Pod:
    """A Guaranteed container of some CPUs and 16 GiB."""
    limits = {"cpu": str(cpus), "memory": "16Gi", **({GPU: "1"} if gpus else {})}
    container = {"name": "c0", "image": "none", "resources": {"limits": limits}}
    identity = {"name": f"bench-{number}", "namespace": "default", "uid": f"bench-{number}"}
    return pod_from({"apiVersion": "v1", "kind": "Pod", "metadata": identity, "spec": {"containers": [container]}})


def busy(node: Node, share: float, *, gpus: bool) -> Ledger:
    """A ledger with a share of the nodes' rooms taken by such pods (three fit on a node of 16 cores)."""
    ledger = node.start()
    for number in range(1, 1 + int(share * 3 * len(node.machine.nodes))):
        ledger = node.admit(ledger, pod(number, gpus=gpus and number % 3 == 0)).ledger
    return ledger


def milliseconds(node: Node, ledger: Ledger, newcomer: Pod, store: Checkpoint | None = None) -> float:
    """Median time of an admission with its invariants, and with the save where a store is given."""
    times: list[float] = []
    for _ in range(ROUNDS if store is None else ROUNDS // 6):
        began = time.perf_counter()
        outcome = node.admit(ledger, newcomer)
        invariants.check(outcome.ledger, node)
        if store is not None:
            store.save(outcome.ledger)
        times.append(time.perf_counter() - began)
        assert isinstance(outcome, Admitted), f"the bench's pod was refused: {outcome}"
    return median(times) * 1e3


def go_results() -> Iterator[tuple[str, float]]:
    """(case, milliseconds) of the kubelet's own admissions."""
    for result in bench(oracle()):
        if result["bench"] == "admit":
            yield result["case"], result["ns_per_op"] / 1e6


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--alone", is_flag=True, help="Do not build or run the Go oracle.")
def main(*, alone: bool) -> None:
    """Time a whole admission: against the kubelet's managers where Go and the oracle are there, then alone.

    Exit code 1 if the goal is missed: under 5 ms (median) on 8 nodes and 256 CPUs with a device.
    """
    go: dict[str, float] = {}
    if not alone:
        try:
            go = dict(go_results())
        except NoOracleError as why:
            click.echo(f"not compared with the kubelet: {why}")
    missed = False
    click.echo("milliseconds per admission (times faster than Go); ! = goal missed")
    click.echo(f"{'8 nodes, 256 CPUs':42}{'Go':>10}{'decision':>18}{'saved':>18}{'busy node':>18}")
    large = "2 sockets x 4 nodes x 16 cores x 2 threads, 64G per node"
    for policy in (Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE):
        for gpus in (False, True):
            case = f"{policy}-cpu-memory{'-gpu' if gpus else ''}"
            node = node_of(large, policy, gpus=gpus, compatibility=Compatibility.KUBELET)
            empty, half = node.start(), busy(node, 0.5, gpus=gpus)
            with tempfile.TemporaryDirectory() as folder:
                columns = (
                    milliseconds(node, empty, pod(0, gpus=gpus)),
                    milliseconds(node, empty, pod(0, gpus=gpus), Checkpoint(Path(folder) / "checkpoint.json")),
                    milliseconds(node, half, pod(0, gpus=gpus)),
                )
            slow = gpus and max(columns[0], columns[2]) >= GOAL_MS
            missed |= slow
            cells = "".join(f"{ms:>8.2f} {f'({go[case] / ms:,.0f}x)' if case in go else '':>9}" for ms in columns)
            click.echo(f"{case:42}{go.get(case, float('nan')):>10.2f}{cells}{' !' if slow else ''}")
    click.echo(f"\n{'ours alone, with a GPU, best-effort':42}{'':>10}{'empty':>18}{'half busy':>18}")
    for name, description in WIDE:
        node = node_of(description, Policy.BEST_EFFORT, gpus=True, compatibility=Compatibility.FIXED)
        times = [milliseconds(node, each, pod(0, gpus=True)) for each in (node.start(), busy(node, 0.5, gpus=True))]
        click.echo(f"{name:42}{'':>10}" + "".join(f"{ms:>18.2f}" for ms in times))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.admission")
