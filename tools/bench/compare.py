"""`python -m tools.bench.compare --base REVISION`: is this revision slower than another? Rounds of both, interleaved.

Every round runs each benchmark in both trees, one after the other, so that what else the machine does falls on both.
A row is slower where the median of its rounds is; rows are those that both print, without the peer's own column.
What has run is kept in --folder: the same command goes on where it ended.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("discovery", "merge", "admission", "node", "simulate")
PEER = "Go"
COUNTS = ("writes", "refused writes", "parents that shrank")
_GAP = re.compile(r"\s{2,}")
_NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?= ?(?:ms|s of CPU|s\b|$))")
_RATIO = re.compile(r"\s*\([\d,.]+x\)")


def rows(text: str) -> Iterator[tuple[str, float]]:
    """The numbers of a benchmark's table, each with its row's name and its column.

    Args:
        text: what `python -m tools.bench.NAME` prints: words, then cells two spaces apart; a line of words alone
            names the columns of those below it. Counts, goals and the peer's column are left out.

    """
    if times := re.findall(r"policies: ([\d.]+) s, ", text):
        yield from (("10,000 pods", 1000 * float(each)) for each in times)
        return
    heads: list[str] = []
    group = ""
    for line in text.splitlines():
        first, *cells = _GAP.split(_RATIO.sub("", line).replace("! missed", "").strip())
        if not cells or first.startswith(COUNTS):
            continue
        values = [_value(cell) for cell in cells]
        if values[0] is None:
            heads = [f"{cells[at - 1]}, {cell}" if cells.count(cell) > 1 else cell for at, cell in enumerate(cells)]
            continue
        group = group if line.startswith(" ") else first
        for number, value in enumerate(values):
            head = heads[number] if number < len(heads) else ""
            if value is not None and head not in {PEER, "goal"}:
                words = (group, first if first != group else "", head if head != "result" else "")
                yield ", ".join(filter(None, words)), value


def _value(cell: str) -> float | None:
    found = _NUMBER.match(cell)
    return float(found[1].replace(",", "")) if found else None


def medians(folder: Path, name: str, tree: str) -> dict[str, float]:
    """Row -> the median of its rounds."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.glob(f"{name}.{tree}.*")):
        for row, value in rows(path.read_text()):
            found.setdefault(row, []).append(value)
    return {row: statistics.median(values) for row, values in found.items()}


def measure(folder: Path, trees: dict[str, Path], names: Sequence[str], rounds: int) -> None:
    """Run what is missing in the folder."""
    for number in range(1, rounds + 1):
        for name in names:
            for tree, place in trees.items():
                kept = folder / f"{name}.{tree}.{number}"
                if kept.exists():
                    continue
                click.echo(f"round {number} of {rounds}: {name}, {tree}", err=True)
                package = "tools" if (place / "tools/bench").is_dir() else "tests"  # where it was until 0.2.0
                command = [sys.executable, "-m", f"{package}.bench.{name}"]
                done = subprocess.run(command, cwd=place, check=False, capture_output=True, text=True)
                if done.returncode not in {0, 1}:
                    raise click.ClickException(
                        f"{name} of {place} ended with {done.returncode}: {done.stderr[-500:]}"
                    )
                part = kept.with_suffix(".part")
                part.write_text(done.stdout)
                part.replace(kept)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--base", required=True, metavar="REVISION", help="What the last commit is compared with.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--most", default=1.05, show_default=True, help="Above this ratio a row counts as slower.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Run this benchmark, and no other not named.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the rounds are kept.  [default: by revisions]")
@click.option("--all", "everything", is_flag=True, help="Show every row and not the slower ones only.")
def main(
    base: str, rounds: int, most: float, only: tuple[str, ...], folder: Path | None, *, everything: bool
) -> None:
    """Compare the last commit's benchmarks with another revision's. Exit code 1 if a row is slower."""
    prints = {tree: _git("rev-parse", "--short=12", rev) for tree, rev in (("old", base), ("new", "HEAD"))}
    cache = Path.home() / ".cache/numalign/bench"
    folder = folder or cache / f"{prints['old']}-{prints['new']}"
    folder.mkdir(parents=True, exist_ok=True)
    trees = {tree: cache / revision for tree, revision in prints.items()}
    for tree, place in trees.items():
        if not place.exists():
            _git("worktree", "add", "--detach", "--quiet", str(place), prints[tree])
    measure(folder, trees, only or NAMES, rounds)
    slower = 0
    click.echo(f"median of {rounds} rounds, {prints['new']} to {prints['old']}")
    for name in only or NAMES:
        old, new = medians(folder, name, "old"), medians(folder, name, "new")
        click.echo(f"{name}: {len(old.keys() & new.keys())} rows")
        for row in (each for each in new if each in old):
            ratio = new[row] / old[row] if old[row] else 1.0
            slower += ratio > most
            if everything or ratio > most:
                mark = " !" if ratio > most else ""
                click.echo(f"  {row:<70}{old[row]:>12,.2f}{new[row]:>12,.2f}{ratio:>8.2f}{mark}")
    sys.exit(1 if slower else 0)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.compare")
