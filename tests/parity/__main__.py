"""`python -m tests.parity FILE...`: are numalign's answers the kubelet's?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import click

from tests.parity.reading import BadVectorError, Vector, read_vectors
from tests.parity.running import Difference, Report, differing, run

LONG = 1200  # characters of an input or answer that are shown unless one vector is asked for
PLACES = 12  # differing places shown of one vector


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--family", "families", multiple=True, metavar="F", help="Only vectors of this family; repeatable.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this vector, shown in full; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N vectors of each file.")
@click.option("--show", default=3, type=click.IntRange(min=0), metavar="N", help="Differences shown per family [3].")
def main(
    files: tuple[Path, ...], families: tuple[str, ...], ids: tuple[str, ...], limit: int | None, show: int
) -> None:
    """Answer recorded inputs of the kubelet's managers and compare with what the kubelet answered.

    FILES are JSON Lines, plain or .gz, of any family: one vector a line, {"family", "id", "input", "expected"} and,
    where the kubelet breaks its own rules, "quirks". Vectors with quirks are counted apart, with what numalign
    answered instead: being equal there is no aim, but a crash or a broken rule counts as a difference.

    \b
    Examples:
      python -m tests.parity tests/parity/vectors/*.jsonl.gz      the project's own part
      python -m tests.parity --family merge --limit 500 REFERENCE/vectors/*.jsonl.gz
      python -m tests.parity --id node-1-17 REFERENCE/vectors/node.jsonl.gz     one, in full

    Exit code 0: all identical; 1: a difference, a crash, a family without a module, or nothing read; 2: a malformed
    file or wrong usage.
    """  # noqa: D301 - click reads the control character
    chosen = (vector for path in files for vector in islice(_wanted(path, families, ids), limit))
    try:
        report = run(chosen, keep=show, tick=_progress())
    except BadVectorError as error:
        click.echo(f"\n{error}" if sys.stderr.isatty() else str(error), err=True)
        sys.exit(2)
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    _print(report, in_full=bool(ids))
    sys.exit(0 if report.ok else 1)


def _wanted(path: Path, families: tuple[str, ...], ids: tuple[str, ...]) -> Iterator[Vector]:
    for vector in read_vectors(path):
        if (not families or vector.family in families) and (not ids or vector.id in ids):
            yield vector


def _progress() -> Callable[[], None]:
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        if count % 100 == 0 and sys.stderr.isatty():
            click.echo(f"\r{count} vectors", err=True, nl=False)

    return tick


def _print(report: Report, *, in_full: bool) -> None:
    if not report.tallies:
        click.echo("nothing was read: no vector matches")
    for tally in report.tallies.values():
        for difference in tally.shown:
            _print_difference(difference, in_full=in_full)
    for family, tally in report.tallies.items():
        if not tally.has_module:
            click.echo(
                f"{family}: {tally.total} vectors, but no tests/parity/{family.replace('-', '_')}.py answers them"
            )
            continue
        click.echo(f"{family}: {tally.identical} identical, {tally.different} different", nl=not tally.with_quirks)
        if tally.with_quirks:
            click.echo(f", {tally.with_quirks} with quirks of the kubelet")
        for quirk, answers in sorted(tally.quirky.items()):
            for said, count in answers.most_common():
                click.echo(f"    {quirk}: {count} x we answered {said}")


def _print_difference(difference: Difference, *, in_full: bool) -> None:
    vector = difference.vector
    click.echo(
        f"--- {vector.id} ({vector.origin})" + (f" quirks: {', '.join(vector.quirks)}" if vector.quirks else "")
    )
    click.echo(f"input    {_cut(vector.input, in_full=in_full)}")
    click.echo(f"expected {_cut(vector.expected, in_full=in_full)}")
    if difference.crash:
        click.echo(f"crashed  {difference.crash.rstrip()}\n")
        return
    click.echo(f"got      {_cut(difference.got, in_full=in_full)}")
    for sentence in difference.broken:
        click.echo(f"  breaks a rule: {sentence}")
    places = list(differing(vector.expected, difference.got))
    for path, expected, got in places if in_full else places[:PLACES]:
        click.echo(f"  {'.'.join(path)}: expected {expected}, got {got}")
    if len(places) > PLACES and not in_full:
        click.echo(f"  ... and {len(places) - PLACES} more places; --id {vector.id} shows all")
    click.echo()


def _cut(value: object, *, in_full: bool) -> str:
    text = json.dumps(value)
    return text if in_full or len(text) <= LONG else f"{text[:LONG]}... ({len(text)} characters)"


if __name__ == "__main__":
    main(prog_name="python -m tests.parity")
