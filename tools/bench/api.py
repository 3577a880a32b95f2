"""Load on the API server: `python -m tools.bench.api`, or `make bench-api`.

Starts a real etcd and kube-apiserver on loopback, fills them with nodes and pods, runs many agents' edges against
them, and prints what that costs per agent and per pod, and what it means for 5,000 nodes. Exits with 1 when the cost
grows with other nodes' pods (`tools.bench.figures.broken`), with 2 when there is no API server to measure.
`--slices` measures what claims of DRA cost instead (`tools.bench.slices`).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests import peers
from tools.bench import paper, slices
from tools.bench.figures import as_json, broken, figures
from tools.bench.load import Scenario
from tools.bench.phases import Plan

DOCUMENT = Path(__file__).parents[2] / "deploy/docs/api-load.md"
QUICK = Plan(agents=20, processes=2, nodes=200, levels=(0, 1000), quiet=6, own=20, settle=1)


def main() -> int:
    """The program."""
    if sys.argv[1:2] == ["--slices"]:
        return slices.main(sys.argv[2:])
    options = _options()
    try:
        program = peers.kube()
    except peers.PeerMissingError as error:
        print(error, file=sys.stderr)
        return 2
    plan, began = _plan(options), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended then, too

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="numalign-load-") as folder,
        Scenario(program, Path(folder) / "cluster", plan, say) as scenario,
    ):
        phases, version = scenario.run(), scenario.version
    found, wrong = figures(phases, plan.agents, plan.present), broken(phases, plan.agents)
    text = paper.page(plan, phases, found, versions(version), wrong)
    print(json.dumps({"figures": as_json(found), "broken": wrong}, indent=2) if options.output == "json" else text)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(text)
    for sentence in wrong:
        print(f"FAILED: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def versions(server: str) -> str:
    """What was measured."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("kopf", "aiohttp", "kubernetes", "urllib3")]
    return ", ".join([f"kube-apiserver {server}", f"Python {platform.python_version()}", *packages])


def _plan(options: argparse.Namespace) -> Plan:
    if options.quick:
        return QUICK
    return Plan(
        agents=options.agents, processes=options.processes, nodes=max(options.nodes, options.agents + 1),
        levels=(0, max(1, options.pods // 4), max(2, options.pods)), present=options.present, quiet=options.quiet,
        rate=options.rate, own=options.own or options.agents,
    )  # fmt: skip


def _options() -> argparse.Namespace:
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tools.bench.api", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute: 20 agents, 200 nodes, 1,000 pods")
    parser.add_argument("--agents", type=int, default=default.agents)
    parser.add_argument("--processes", type=int, default=default.processes, help="that the agents run in")
    parser.add_argument("--nodes", type=int, default=default.nodes, help="in all")
    parser.add_argument("--pods", type=int, default=default.levels[-1], help="of nodes without an agent")
    parser.add_argument("--present", type=int, default=default.present, help="pods per agent from the beginning")
    parser.add_argument("--own", type=int, default=0, help="pods that come and go per phase; default: one per agent")
    parser.add_argument("--quiet", type=float, default=default.quiet, help="seconds of a phase that waits")
    parser.add_argument("--rate", type=float, default=default.rate, help="changes of others per second")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--write", type=Path, nargs="?", const=DOCUMENT, help="save the page too, default: deploy/docs/api-load.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
