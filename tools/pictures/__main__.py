"""Draws the pictures of the README and of the documentation from real runs: `make pictures`.

run.svg           the tables of `make run`
machine.svg       the drawing of `numalign topology`, with the pods of that run
page-*.png        the node page in a headless browser: light, dark, on a narrow screen; explanation.png: a pod's
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from agent.app.page.views import NodeView, view_of
from agent.app.standalone.build import StandaloneOptions, StandaloneService, standalone_node
from agent.cli import show
from agent.cli.report import print_report
from agent.observe import logs
from agent.observe.drawing import draw
from tests import programs
from tools.pictures.page import shoot

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
FOLDER = ROOT / "deploy" / "pictures"
MACHINE = "two-sockets"
TABLES, DRAWING = "run.svg", "machine.svg"
WIDTH = 140
"""Columns of the terminal that shows the tables."""


def pictures() -> dict[str, str]:
    """The example pods placed on a recorded machine: the tables as SVG, and the drawing."""
    logs.setup("text", "error")
    with tempfile.TemporaryDirectory() as state:
        options = StandaloneOptions(
            pods=EXAMPLES / "pods", config=EXAMPLES / "config.yaml", state=Path(state), root=MACHINE, processes=False
        )
        with standalone_node(options) as node:
            node.once()
            view = view_of(node.engine.ledger, node.engine.node, node.engine.pods)
            drawing = draw(node.engine.node.machine, node.engine.ledger, reserved=node.engine.node.reserved)
            found = {TABLES: _tables(node, view), DRAWING: drawing}
    return found


def _tables(node: StandaloneService, view: NodeView) -> str:
    """What `make run` prints."""
    target = show.console(record=True, width=WIDTH)
    target.file = io.StringIO()
    print_report(node, view, [], target, foot=False)
    drawn = target.export_svg(title=f"make run MACHINE={MACHINE}", unique_id="numalign")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # nothing is fetched when it is looked at


def main() -> None:
    """Save them."""
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, "utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")
    if not programs.find("chromium"):
        raise SystemExit("no Chromium here: install the package chromium for the pictures of the page")
    for file in shoot(FOLDER, EXAMPLES):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
