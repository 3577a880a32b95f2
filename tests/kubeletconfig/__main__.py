"""`python -m tests.kubeletconfig`: build each kubelet's decoder, ask it and numalign the same files, and compare."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import click

from tests.kubeletconfig import page as pages
from tests.kubeletconfig import recorded
from tests.kubeletconfig.asking import alike, compared, kubelet, pattern
from tests.kubeletconfig.compare import NOT_ASKED, Difference
from tests.kubeletconfig.grammar import File, Grammar
from tests.kubeletconfig.intended import TABLE, meant
from tests.kubeletconfig.machines import MACHINES
from tests.kubeletconfig.recorded import Recorded
from tests.kubeletconfig.singles import singles
from tests.peers import PeerMissingError, decoders, kubelets

TWICE = 2


def asked_of_all(files: Iterable[File]) -> Iterator[Recorded]:
    """Every kubelet's answer to each file."""
    with ExitStack() as stack:
        asked = {minor: stack.enter_context(kubelet(minor)) for minor in kubelets.RELEASES}
        for file in dict.fromkeys(files):
            told = {minor: answer(file) for minor, answer in asked.items()}
            yield Recorded(file, {minor: each for minor, each in told.items() if each.get("stage") != NOT_ASKED})


def chosen(count: int, seed: int) -> Iterator[Recorded]:
    """Every kubelet's answer to single values and to files of the grammar, where it is of a kind that is new."""
    known = [decoders.gates(minor) for minor in kubelets.RELEASES]
    free = {name: spec for name, spec in known[0].items() if all(_free(gates.get(name)) for gates in known)}
    grammar, kinds = Grammar(seed, free), Counter[tuple[Any, ...]]()
    for found in asked_of_all(chain(singles(), (grammar.file() for _ in range(count)))):
        kind = tuple(_kind(found, minor) for minor in found.answers)
        kinds[kind] += 1
        if kinds[kind] <= TWICE and len(found.answers) == len(kubelets.RELEASES):
            yield found


def _free(spec: Mapping[str, Any] | None) -> bool:
    return spec is not None and not spec["locked"]


def _kind(found: Recorded, minor: int) -> tuple[Any, ...]:
    told = found.answers[minor]
    differences = compared(lambda _: dict(told), minor, found.file)
    return (
        told["accepted"],
        told.get("stage"),
        pattern(told.get("error", "")),
        *((each.mode, each.what) for each in differences),
    )


FILES = Path(__file__).parent / "files"
MINORS = click.option("--minor", "minors", type=int, multiple=True, help="34, 35 ...; every supported one without.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """KubeletConfigurations as the kubelets take them, and as numalign does."""


@main.command()
@MINORS
def build(minors: tuple[int, ...]) -> None:
    """Build the decoders, one after the other; minutes each. Exit code 1: one cannot be built."""
    missing = False
    for minor in minors or tuple(kubelets.RELEASES):
        try:
            click.echo(f"kubelet 1.{minor}: {decoders.decoder(minor)}")
        except PeerMissingError as error:
            missing = True
            click.echo(f"kubelet 1.{minor}: MISSING: {error}")
    sys.exit(int(missing))


@main.command()
@MINORS
@click.option("--count", default=3000, show_default=True, help="Files of the grammar.")
@click.option("--seed", default=1, show_default=True)
@click.option("--given", type=click.Path(path_type=Path, exists=True), multiple=True, help="More files to ask.")
def compare(minors: tuple[int, ...], count: int, seed: int, given: tuple[Path, ...]) -> None:
    """Print every difference that is not intended, with the smallest of its files.

    Asked are the files of tools and distributions, every odd value by itself, and files of a grammar.

    Exit code 1: there is one, or a kubelet is missing.
    """
    faults = 0
    for minor in minors or tuple(kubelets.RELEASES):
        try:
            faults += _compared(minor, count, seed, given)
        except PeerMissingError as error:
            faults += 1
            click.echo(f"== kubelet 1.{minor}: NOT COMPARED: {error}")
    sys.exit(int(faults > 0))


@main.command()
@click.option("--count", default=6000, show_default=True, help="Files of the grammar to choose from.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--keep", is_flag=True, help="Ask the table's examples and files of tools alone; keep the other answers."
)
def record(count: int, seed: int, *, keep: bool) -> None:
    """Ask every supported kubelet, and keep the answers for tests that run without one."""
    always = [each.file() for each in TABLE]
    always += [File(path.read_text("utf-8"), where) for path in sorted(FILES.iterdir()) for where in MACHINES]
    found = list(asked_of_all(always))
    more = recorded.read() if keep else chosen(count, seed)
    found += [each for each in more if each.file not in set(always)]
    recorded.write(found)
    click.echo(f"{len(found)} files")


@main.command()
def page() -> None:
    """Write the developers' page of intended differences."""
    pages.PAGE.write_text(pages.page(), "utf-8")


def _compared(minor: int, count: int, seed: int, given: tuple[Path, ...]) -> int:
    kinds: dict[tuple[str, ...], list[Difference]] = {}
    with kubelet(minor) as theirs:
        for file in _files(minor, count, seed, given):
            for found in compared(theirs, minor, file):
                if meant(found) is None:
                    kinds.setdefault(alike(found), []).append(found)
        click.echo(f"== kubelet 1.{minor}: {len(kinds)} kinds of differences that are not intended")
        for found_kind in sorted(kinds.values(), key=len, reverse=True):
            _show(min(found_kind, key=lambda each: len(each.file.text)), len(found_kind))
    return len(kinds)


def _files(minor: int, count: int, seed: int, given: tuple[Path, ...]) -> Iterator[File]:
    grammar = Grammar(seed, decoders.gates(minor))
    for path in (*sorted(FILES.iterdir()), *given):
        for where in MACHINES:
            yield File(path.read_text("utf-8"), where)
    yield from singles()
    for _ in range(count):
        yield grammar.file()


def _show(found: Difference, count: int) -> None:
    click.echo(f"-- {found.mode}, {found.what}, {count} files, on {found.file.machine}")
    click.echo(f"   kubelet:  {found.kubelet[:300]}")
    click.echo(f"   numalign: {found.numalign[:300]}")
    click.echo("".join(f"   | {line}\n" for line in found.file.text.splitlines()))


if __name__ == "__main__":
    main()
