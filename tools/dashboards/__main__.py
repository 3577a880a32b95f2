"""`make dashboards`: write Grafana's JSON, fill the panels from a real Prometheus, draw them into deploy/pictures."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import peers, programs
from tests.page.browser import Browser
from tools.dashboards import drawing, grafana
from tools.dashboards.fleet import GATE
from tools.dashboards.grafana import BOARDS
from tools.dashboards.panels import Board
from tools.dashboards.world import RATE, World
from tools.pictures.palette import shrink

PICTURES = Path(__file__).parents[2] / "deploy" / "pictures"
NODE = "worker-2"
NOT_HERE = {
    "Answers to the runtime (NRI), per minute": "no container runtime runs here",
    "Memory that the kernel could still give, by NUMA node": "a described machine has no kernel; the edge node has",
    "Writes that failed, per minute": "nothing failed, which is a quiet 0",
    **dict.fromkeys((panel.title for panel in GATE), "no gatekeeper runs here"),
}
"""Panels without an answer in this world, and why."""


def filled(world: World, board: Board, end: float) -> drawing.Drawn:
    """A dashboard with what Prometheus answers now."""
    span = (world.began, end)

    def ask(expr: str) -> list[dict[str, Any]]:
        return world.prometheus.ask(expr.replace("$__rate_interval", RATE), *span)

    nodes = [*world.places, "edge"] if board.uid == "numalign-fleet" else [NODE]
    numa = [each["metric"]["numa_node"] for each in ask(f'max by (numa_node) (numalign_cpus{{node="{NODE}"}})')]
    return drawing.board(board, ask, {"numa_node": sorted(map(str, numa)), "node": nodes}, span)


def shoot(page: str, height: int, target: Path) -> None:
    """A picture of a page, by a headless browser."""
    browser = programs.find("chromium")
    if browser is None:
        raise SystemExit("a headless browser is missing: Debian's package chromium")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, "utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder}/u",
            f"--window-size=1634,{height}", f"--screenshot={target}", file.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> int:
    """Do it; 1 when a panel has no answer and no reason for that."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description=__doc__)
    parser.add_argument("--seconds", type=int, default=240, help="how long pods come and go [240]")
    parser.add_argument("--json-only", action="store_true", help="write Grafana's JSON and stop")
    chosen = parser.parse_args()
    grafana.write()
    if chosen.json_only:
        return 0
    with tempfile.TemporaryDirectory() as folder, World(peers.kube(), Path(folder)) as world:
        world.live(chosen.seconds)
        end, bad = time.time(), False
        for board in BOARDS:
            drawn = filled(world, board, end)
            target = PICTURES / f"{board.uid.replace('numalign', 'dashboard')}.png"
            shoot(drawn.page, drawn.height, target)
            with Browser() as browser:
                shrink(browser, target)
            sys.stdout.write(f"{target}\n")
            for title in drawn.empty:
                bad |= title not in NOT_HERE
                sys.stdout.write(f"  no answer: {title}: {NOT_HERE.get(title, 'WHY?')}\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
