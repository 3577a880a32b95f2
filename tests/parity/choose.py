"""`python -m tests.parity.choose`: picks a small part of a vector file that covers what the whole covers.

Each vector has *features*: paths of its input and answer with their values shortened to what matters (a policy's
name, a number's magnitude, which keys are there, an error's words), and pairs of the broad ones. Vectors are taken
greedily: the one with the most features not yet seen, per byte; once all were seen, the same again with the rest,
until the packed limit is reached. Same input, same choice. tests/parity/vectors was chosen with it. An input that
crashes a kubelet, or on which it never returns, is never chosen.
"""

from __future__ import annotations

import gzip
import heapq
import json
import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from tests.parity.reading import BadVectorError, Vector, read_vectors

BROAD = re.compile(
    r"(numa_nodes$|policy|options|gates|topology|scope|algorithm|sorting|op|kind|plugin|init_error|failure|reason|admit)"
)
"""Keys whose values matter in combination with each other."""

HARMFUL = frozenset({"panic", "hang"})
"""Quirks of inputs that end a kubelet."""

FREE_TEXT = frozenset({"id", "name", "uid", "message", "container", "pod"})


def features(vector: Vector) -> set[str]:
    """What a vector covers."""
    found = {f"quirk={quirk}" for quirk in vector.quirks}
    broad = set(found)
    for side, value in (("in", vector.input), ("out", vector.expected)):
        for path, text in _leaves(value):
            feature = f"{side}.{path}={text}"
            found.add(feature)
            if BROAD.search(path):
                broad.add(feature)
    found |= {f"{a} & {b}" for a, b in combinations(sorted(broad), 2)}
    return found


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield path, f"keys {len(value)}"
        for key, inner in value.items():
            name = "*" if re.search(r"[0-9/]", key) else key
            if name not in FREE_TEXT:
                yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield path, f"length {_magnitude(len(value))}"
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    elif isinstance(value, bool) or value is None:
        yield path, str(value)
    elif isinstance(value, int):
        yield path, f"about {_magnitude(value)}"
    elif isinstance(value, str):
        yield path, re.sub(r"[0-9]+", "N", value)[:60]


def _magnitude(number: int) -> str:
    """Small numbers as they are, others by their number of bits."""
    return str(number) if abs(number) <= 8 else f"2^{abs(number).bit_length()}"


def choose(vectors: Iterable[Vector], lines: list[bytes], limit: int) -> list[int]:
    """Indices, ascending, of the vectors chosen: greedy cover by features per byte, within a packed size."""
    covers = [features(vector) for vector in vectors]
    weights = [_packed(line) for line in lines]
    chosen: list[int] = []
    while more := _cover(covers, weights, limit - sum(weights[index] for index in chosen), set(chosen)):
        chosen += more
    return sorted(chosen)


def _cover(covers: list[set[str]], weights: list[int], limit: int, taken: set[int]) -> list[int]:
    """One round: every feature once, as far as the limit goes."""
    seen: set[str] = set()
    chosen: list[int] = []
    heap = [(-len(covers[index]) / weights[index], index) for index in range(len(covers)) if index not in taken]
    heapq.heapify(heap)
    while heap:
        _, index = heapq.heappop(heap)
        gain = len(covers[index] - seen) / weights[index]
        if not gain or weights[index] > limit:
            continue
        if heap and gain < -heap[0][0]:  # what it adds has shrunk since it was ranked
            heapq.heappush(heap, (-gain, index))
            continue
        limit -= weights[index]
        chosen.append(index)
        seen |= covers[index]
    return chosen


def _packed(line: bytes) -> int:
    """Roughly what a line adds to a packed file: beside its like it packs better than alone."""
    return max(1, len(gzip.compress(line, mtime=0)) - 20)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--kib", default=120, show_default=True, type=click.IntRange(min=1), help="Largest size of TARGET.")
@click.option("--always", multiple=True, metavar="ID", help="A vector to take whatever it covers; repeatable.")
def main(source: Path, target: Path, kib: int, always: tuple[str, ...]) -> None:
    """Write a part of SOURCE (vectors, JSON Lines, plain or .gz) to TARGET (.jsonl.gz) that covers what all do.

    Example: python -m tests.parity.choose REFERENCE/vectors/cpu.jsonl.gz tests/parity/vectors/cpu.jsonl.gz --kib 180
    """
    try:
        vectors = [each for each in read_vectors(source) if HARMFUL.isdisjoint(each.quirks)]
    except BadVectorError as error:
        raise click.ClickException(str(error)) from error
    lines = [_line(vector) for vector in vectors]
    picked = [index for index, vector in enumerate(vectors) if vector.id in always]
    limit = kib * 1024 * 2
    while True:  # lines pack better together than each alone: start above the limit and come down until it fits
        chosen = sorted({*picked, *choose(vectors, lines, limit)})
        packed = gzip.compress(b"".join(lines[index] for index in chosen), compresslevel=9, mtime=0)
        if len(packed) <= kib * 1024 or limit < 1024:
            break
        limit = limit * 9 // 10
    target.write_bytes(packed)
    whole = set().union(*map(features, vectors))
    covered = set().union(*(features(vectors[index]) for index in chosen))
    click.echo(
        f"{len(chosen)} of {len(vectors)} vectors, {len(packed):,} bytes, {len(covered)} of {len(whole)} features"
    )


def _line(vector: Vector) -> bytes:
    raw: dict[str, Any] = {
        "family": vector.family,
        "id": vector.id,
        "input": vector.input,
        "expected": vector.expected,
    }
    if vector.quirks:
        raw["quirks"] = list(vector.quirks)
    return json.dumps(raw, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    main(prog_name="python -m tests.parity.choose")
