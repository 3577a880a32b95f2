"""`python -m tools.bench.simulate`: `numalign simulate` timed, 10,000 pods over 100 machines of two kinds.

A quarter of the pods is Guaranteed with whole CPUs, some with a network card; the others share. The
whole command runs, in a process of its own: manifests are read, tables are made. Wall time depends on who else uses
the machine, so the CPU time of the process is told, too, and the better of the two counts.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

PODS = 10_000
GOAL_SECONDS = 60.0
CONFIG = """\
memoryManagerPolicy: Static
onMisalignment: fail
systemReserved: {cpu: "1", memory: 1Gi}
devices:
  - resource: numalign.io/nic
    class: "02"
"""
KINDS = ("60xtwo-sockets", "40xchiplets")


def manifest(number: int, draw: random.Random) -> Mapping[str, Any]:
    """One pod of the mix."""
    pinned = number % 4 == 0
    cpu = draw.choice(["1", "1", "1", "2", "2", "4"]) if pinned else draw.choice(["50m", "100m", "250m"])
    resources = {"cpu": cpu, "memory": draw.choice(["64Mi", "256Mi", "1Gi"])}
    if pinned and number % 48 == 0:
        resources["numalign.io/nic"] = "1"
    kind = "limits" if pinned else "requests"
    container = {"name": "app", "image": "example.com/app", "resources": {kind: resources}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]},
    }  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--policy", default="single-numa-node", show_default=True, help="As `numalign simulate` takes them.")
@click.option("--pods", default=PODS, show_default=True)
def main(policy: str, pods: int) -> None:
    """Time `numalign simulate`. Exit code 1 if the goal is missed: under a minute for each policy."""
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        file, config = Path(folder) / "pods.json", Path(folder) / "config.yaml"
        items = [manifest(number, draw) for number in range(pods)]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        config.write_text(CONFIG)
        nodes = [part for kind in KINDS for part in ("--node", kind)]
        arguments = ["--pods", str(file), "--config", str(config), "--policy", policy, *nodes]
        began, used = time.perf_counter(), _used()
        done = subprocess.run([sys.executable, "-m", "agent", "simulate", *arguments], check=False)
        wall, cpu = time.perf_counter() - began, _used() - used
    variants = len(policy.split(","))
    missed = min(wall, cpu) > GOAL_SECONDS * variants or done.returncode not in {0, 1}
    click.echo(
        f"{pods:,} pods, 100 machines, {variants} policies: {wall:.1f} s, {cpu:.1f} s of CPU; goal "
        f"{GOAL_SECONDS:.0f} s each{' ! missed' if missed else ''}"
    )
    sys.exit(1 if missed else 0)


def _used() -> float:
    """CPU seconds of all ended child processes."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.simulate")
