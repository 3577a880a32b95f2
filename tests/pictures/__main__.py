"""Draws the README's picture from a real run: `make pictures`."""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from agent.app.standalone import Options, Standalone
from agent.app.views import view_of
from agent.cli import show
from agent.cli.report import print_report
from agent.observe import logs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
FILE = ROOT / "deploy" / "pictures" / "run.svg"
MACHINE = "two-sockets"
WIDTH = 140


def picture() -> str:
    """The example pods placed on a recorded machine: the tables as SVG."""
    logs.setup("text", "error")
    target = show.console(record=True, width=WIDTH)
    target.file = io.StringIO()
    with tempfile.TemporaryDirectory() as state:
        options = Options(
            pods=EXAMPLES / "pods", config=EXAMPLES / "config.yaml", state=Path(state), root=MACHINE, processes=False
        )
        with Standalone(options) as node:
            node.once()
            view = view_of(node.engine.ledger, node.engine.node, node.engine.known)
            print_report(node, view, [], target, foot=False)
    drawn = target.export_svg(title=f"make run MACHINE={MACHINE}", unique_id="numalign")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # nothing is fetched when it is looked at


def main() -> None:
    """Save it."""
    FILE.write_text(picture(), "utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
