"""`python -m tests.hostile`: more rounds of the fuzz than the tests make, or the table of a real server's answers."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from tests import peers
from tests.cluster.control_plane import ControlPlane
from tests.hostile import asking, rounds
from tests.hostile.claims import FOLLOWING
from tests.matrix.agents import Agents
from tests.matrix.node import Node


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", "number", default=10, show_default=True, help="So many rounds, of as many seeds.")
@click.option("--seed", default=rounds.SEED, show_default=True, help="The first seed; also NUMALIGN_SEED.")
@click.option("--everything", is_flag=True, help="Also what a real API server refuses.")
@click.option("--ask", is_flag=True, help="Ask a real kube-apiserver which kinds it takes, and write answers.json.")
def main(*, number: int, seed: int, everything: bool, ask: bool) -> None:
    """Put hostile pods beside innocent ones, and see that these get what they get beside harmless ones.

    Each round has its seed, and makes the same pods again: a round that fails is repeated with --rounds 1 --seed N.
    What is hostile in a pod has a name, see tests/hostile/kinds_annotations.py and kinds_bodies.py.

    \b
    Examples:
      python -m tests.hostile --rounds 100 --seed 1000
      python -m tests.hostile --rounds 1 --seed 1042 --everything
      python -m tests.hostile --ask

    Exit codes: 0 all the same; 1 a round differs, and is printed with its seed.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    with tempfile.TemporaryDirectory() as folder:
        if ask:
            with ControlPlane(peers.kube(), Path(folder)) as cluster:
                asking.write(cluster)
            click.echo(f"written: {asking.TABLE}")
            return
        wrong = 0
        with Agents() as agents:
            for each in range(seed, seed + number):
                with ExitStack() as stack:

                    def made(name: str, stack: ExitStack = stack) -> Node:
                        path = Path(folder, name)
                        path.mkdir()
                        return stack.enter_context(Node(path, agents, settings=FOLLOWING))

                    found = rounds.one(made, each, everything=everything)
                wrong += bool(found)
                click.echo(found or f"{each}: the same")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(prog_name="python -m tests.hostile")
