"""`python -m tests.referee`: what our code answers to a sequence, and random sequences."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.peers.oracle import NoOracleError, answer, oracle
from tests.referee import vectors
from tests.referee.engine_node import EngineNode
from tests.referee.generate import answered, generate
from tests.referee.running import compare, run
from tests.referee.sequence import BadSequenceError, Sequence, read
from tests.referee.writing import text_of


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Sequences of pods with what a kubelet's managers answer (tests/lab/sequences)."""


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Write the answers into the files instead of printing them.")
def ask(files: tuple[Path, ...], *, write: bool) -> None:
    """Print sequences with the answers of our pure core as expectations: look at each before you keep it.

    A file under work may expect anything (cpus: shared, mems: any, shared: 0) as long as it is well formed.

    \b
    Examples:
      python -m tests.referee ask tests/lab/sequences/restart.yaml
      python -m tests.referee ask --write tests/lab/sequences/new.yaml

    Exit code 0; 2: a malformed file.
    """  # noqa: D301 - click reads the control character
    for path in files:
        sequence = _read(path)
        text = text_of(sequence, answered(sequence))
        if write:
            path.write_text(text, "utf-8")
        else:
            click.echo(text, nl=False)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(files: tuple[Path, ...]) -> None:
    """Run sequences on our engine and, where it can be built, on the kubelet's managers; print the differences.

    \b
    Example:
      python -m tests.referee check tests/lab/sequences/*.yaml

    Exit code 0: as expected; 1: differences; 2: a malformed file.
    """  # noqa: D301 - click reads the control character
    different = 0
    try:
        program = oracle()
    except NoOracleError as why:
        click.echo(f"without the kubelet's managers: {why}", err=True)
        program = None
    for path in files:
        sequence = _read(path)
        with tempfile.TemporaryDirectory() as folder:
            texts = [
                f"engine: {text}" for text in compare(sequence, run(sequence, EngineNode(Path(folder), sequence)))
            ]
        if program is not None:
            asked = answer(program, [{"family": "node", "id": sequence.name, "input": vectors.vector_of(sequence)}])
            trace = vectors.trace_of(sequence, asked[0]["expected"])
            texts += [f"kubelet's managers: {text}" for text in compare(sequence, trace)]
        for text in texts:
            click.echo(text)
        different += bool(texts)
    click.echo(f"{len(files) - different} of {len(files)} as expected")
    raise SystemExit(1 if different else 0)


@main.command("random")
@click.argument("seed", type=int)
@click.option("--steps", default=10, show_default=True, type=click.IntRange(min=1, max=200))
def random_(seed: int, steps: int) -> None:
    """Print the random sequence of SEED as a file.

    \b
    Example:
      python -m tests.referee random 7
    """  # noqa: D301 - click reads the control character
    click.echo(text_of(*generate(seed, steps)), nl=False)


def _read(path: Path) -> Sequence:
    try:
        return read(path)
    except BadSequenceError as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m tests.referee")
