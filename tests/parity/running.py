"""Answers vectors with the project's own code and compares.

A family's module is `tests.parity.<family, "-" as "_">` and has `answer(input, literally=...)`: what `expected`
holds, in the same shape, and sentences about rules that our answer breaks.

`literally`: without the product's guards against what the kubelet gets away with where its recorder does not look (a
CPU that was not offered, inside a pod with pod-level resources or for a pod that is refused).

Vectors with `quirks` are those where the kubelet breaks its own rules (it hands CPUs out twice, or refuses its own
state). Being equal there is no aim: ours must not crash and must break no rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from importlib import import_module

from tests.parity.reading import Vector

SHOWN = 5
"""Vectors that a failure shows, and lines around what differs in each."""


def check(vectors: Iterable[Vector]) -> None:
    """Answer every vector; fails with the first few that are answered otherwise, and where there is none."""
    read, wrong = 0, list[str]()
    for vector in vectors:
        read += 1
        try:
            said = list(differences(vector))
        except Exception as error:
            error.add_note(f"{vector.id} of {vector.origin}")
            raise
        if said:
            wrong.append("\n  ".join([f"{vector.id} of {vector.origin}", *said]))
    assert read, "there is no vector"
    assert not wrong, "\n".join([f"{len(wrong)} of {read} are answered otherwise", *wrong[:SHOWN]])


def differences(vector: Vector) -> Iterator[str]:
    """What is wrong with our answer to a vector."""
    module = import_module(f"tests.parity.{vector.family.replace('-', '_')}")
    got, broken = module.answer(vector.input, literally=not vector.quirks)
    if vector.quirks:
        yield from broken
        if module.answer(vector.input) != (got, broken):
            yield "two runs gave two answers"
        return
    plain = json.loads(json.dumps(got))  # tuples as lists, as the expected answer has them
    if plain != vector.expected:
        wanted, ours = (json.dumps(each, indent=1, sort_keys=True).splitlines() for each in (vector.expected, plain))
        yield "\n  ".join(unified_diff(wanted, ours, "expected", "got", n=SHOWN, lineterm=""))
