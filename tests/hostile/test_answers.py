"""The table of a real server's answers is of the kinds that there are, and is what a server says today."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.hostile.asking import TAKEN, ask, table
from tests.hostile.objects import KINDS, alone, whole, written

SAMPLE = ("fields-written-deep", "value-control", "quantity-1e300", "containers-60-long", "name-253", "name-254",
          "annotations-one-too-large", "quantity-minus", "container-name-odd", "exclusive",
          "exclusive-beside-a-sidecar")  # fmt: skip


def test_hostile_the_table_has_every_kind() -> None:
    """`python -m tests.hostile` makes it again."""
    assert set(table()["answers"]) == set(KINDS)


def test_hostile_the_same_seed_makes_the_same_pods() -> None:
    """Byte for byte, in any order of asking."""
    first = [written(pod.body) for pod in (*whole(7, 20), *alone(7))]
    assert first == [written(pod.body) for pod in (*whole(7, 20), *alone(7))]
    assert first[:20] != [written(pod.body) for pod in whole(8, 20)]


@pytest.mark.cluster
def test_hostile_a_real_server_says_what_the_table_has(cluster: ControlPlane) -> None:
    """Of a sample of the kinds, whether it takes them."""
    kept = table()["answers"]
    found = ask(cluster, SAMPLE)
    assert {kind: answer == TAKEN for kind, answer in found.items()} == {
        kind: kept[kind] == TAKEN for kind in SAMPLE
    }  # fmt: skip
