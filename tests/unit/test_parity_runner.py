"""The parity runner itself: a runner that cannot fail would prove nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.reading import read_vectors
from tests.parity.running import check

SAME: dict[str, Any] = {
    "family": "merge",
    "id": "same",
    "input": {"numa_nodes": [0, 1], "policy": "restricted", "providers": [{"cpu": [[1, 1], [2, 1], [3, 0]]}]},
    "expected": {"hint": [1, 1], "admit": True},
}
OTHER = {**SAME, "id": "other", "expected": {"hint": [2, 1], "admit": True}}
ODD = {**SAME, "id": "odd", "expected": {"init_error": "no"}, "quirks": ["cpus_lost"]}
BROKEN_INPUT = {**SAME, "id": "crash", "input": {"numa_nodes": [0], "policy": "restricted"}}


def parity(tmp_path: Path, *vectors: dict[str, Any]) -> None:
    """Run a file of vectors."""
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(vector) + "\n" for vector in vectors))
    check(read_vectors(path))


def test_identical_answers_pass(tmp_path: Path) -> None:
    """Being equal is no aim where the kubelet breaks its own rules."""
    parity(tmp_path, SAME, ODD)


def test_a_difference_fails_and_is_shown(tmp_path: Path) -> None:
    """Id, line, expected, got, and the place; the first few are shown, and all are counted."""
    with pytest.raises(AssertionError) as caught:
        parity(tmp_path, SAME, *[OTHER] * 7)
    text = str(caught.value)
    assert text.startswith("7 of 8 are answered otherwise\n")
    assert [line for line in range(1, 9) if f"other of {tmp_path}/some.jsonl:{line}\n" in text] == [2, 3, 4, 5, 6]
    assert "-  2," in text
    assert "+  1," in text


def test_a_crash_fails_even_with_quirks(tmp_path: Path) -> None:
    """Whatever the kubelet does, ours may not crash."""
    with pytest.raises(KeyError, match="providers") as caught:
        parity(tmp_path, {**BROKEN_INPUT, "quirks": ["cpus_lost"]})
    assert caught.value.__notes__ == [f"crash of {tmp_path}/some.jsonl:1"]


def test_a_broken_rule_fails_with_quirks(tmp_path: Path) -> None:
    """An answer to a vector with quirks is checked by the family's own rules."""
    with pytest.raises(AssertionError, match="the kubelet got as far as merging"):
        parity(tmp_path, {**ODD, "input": {**SAME["input"], "policy": "no-such-policy"}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]\n", r"some.jsonl:1: 1 validation error for Vector\n.*should be an object"),
        ("\nnot json\n", r"some.jsonl:2: (?s:.)*Invalid JSON"),
        ('{"family": "merge", "id": 3}\n', r"id\n.*should be a valid string"),
        (json.dumps({**SAME, "quirks": "cpus_lost"}), r"quirks\n.*should be a valid array"),
    ],
)
def test_malformed_lines_name_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    """And what is wrong there."""
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        check(read_vectors(path))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    """A .gz that ends early is an error of the file, not of a vector."""
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(SAME).encode() * 100)[:-20])
    with pytest.raises(EOFError):
        check(read_vectors(path))


def test_nothing_read_fails(tmp_path: Path) -> None:
    """A file without vectors is no success."""
    with pytest.raises(AssertionError, match="there is no vector"):
        parity(tmp_path)


def test_a_family_without_a_module_fails_and_says_so(tmp_path: Path) -> None:
    """No module is no parity."""
    with pytest.raises(ImportError, match=r"tests\.parity\.no_such"):
        parity(tmp_path, {**SAME, "family": "no-such"})
