"""A real kubelet is the referee: both nodes must do what every sequence expects, so both do the same.

Each runs step by step on the node that numalign pins on and on the node whose kubelet pins by itself.

Sequences with the same settings come one after the other: a kubelet has to be restarted for other ones.

    NUMALIGN_LAB_REFEREE=1    those tagged `run` have their pods started; those tagged `core` and a few random ones
                              are decided only, by the real kubelet and by numalign: no container starts
    NUMALIGN_LAB_REFEREE=all  every sequence for the lab's machine and all random ones, in the same way
    NUMALIGN_LAB_FULL=1       every one of them with all pods started
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.referee.chosen import FULL, chosen
from tests.lab.report import record
from tests.referee.books_node import BooksNode
from tests.referee.ground import Ground
from tests.referee.guest_node import GuestNode
from tests.referee.running import Seen, compare, run
from tests.referee.sequence import Sequence

pytestmark = [pytest.mark.lab]

TOLD: dict[type[GuestNode], str] = {BooksNode: "decided", GuestNode: "run"}
AGREED: Counter[type[GuestNode]] = Counter()


@pytest.mark.parametrize("sequence", chosen(), ids=lambda each: each.name)
def test_both_nodes_do_what_the_sequence_expects(grounds: dict[str, Ground], sequence: Sequence) -> None:
    """CPUs, nodes, quotas and pools of every container are those of the file, on both; refusals are refusals."""
    if sequence.name.startswith("random-"):
        print(f"python -m tests.referee {sequence.name.removeprefix('random-')}")

    kind = GuestNode if FULL or "run" in sequence.tags else BooksNode

    def play(ground: Ground) -> tuple[Seen, ...]:
        ground.ready(sequence)
        return run(sequence, kind(ground, sequence))

    with ThreadPoolExecutor(len(grounds)) as pool:
        traces = dict(zip(grounds, pool.map(play, grounds.values()), strict=True))
    different = [f"{name}: {text}" for name, trace in traces.items() for text in compare(sequence, trace)]
    assert not different, "\n".join(different)
    AGREED[kind] += 1
    record(f"referee: sequences {TOLD[kind]}, numalign and kubelet alike", AGREED[kind])
