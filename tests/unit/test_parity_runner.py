"""The parity runner itself: a runner that cannot fail would prove nothing."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.parity import running
from tests.parity.reading import BadVectorError, read_vectors
from tests.parity.running import Report, differing, run

SAME: dict[str, Any] = {
    "family": "merge",
    "id": "same",
    "input": {"numa_nodes": [0, 1], "policy": "restricted", "providers": [{"cpu": [[1, 1], [2, 1], [3, 0]]}]},
    "expected": {"hint": [1, 1], "admit": True},
}
OTHER = {**SAME, "id": "other", "expected": {"hint": [2, 1], "admit": True}}
ODD = {**SAME, "id": "odd", "expected": {"init_error": "no"}, "quirks": ["cpus_lost"]}
BROKEN_INPUT = {**SAME, "id": "crash", "input": {"numa_nodes": [0], "policy": "restricted"}}


def parity(tmp_path: Path, *vectors: dict[str, Any]) -> Report:
    """Run a file of vectors."""
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(vector) + "\n" for vector in vectors))
    return run(read_vectors(path))


def test_identical_answers_pass(tmp_path: Path) -> None:
    """Being equal is no aim where the kubelet breaks its own rules."""
    report = parity(tmp_path, SAME, ODD)
    assert (report.ok, report.read, report.different, report.shown) == (True, 2, 0, [])


def test_a_difference_fails_and_is_shown(tmp_path: Path) -> None:
    """Id, line, expected, got, and the place; the first few are kept, and all are counted."""
    report = parity(tmp_path, SAME, *[OTHER] * 7)
    assert (report.ok, report.read, report.different, len(report.shown)) == (False, 8, 7, 5)
    shown = report.shown[0]
    assert (shown.vector.id, shown.vector.origin) == ("other", f"{tmp_path}/some.jsonl:2")
    assert [*differing(shown.vector.expected, shown.got)] == [(("hint", "0"), "2", "1")]


def test_a_crash_fails_even_with_quirks(tmp_path: Path) -> None:
    """Whatever the kubelet does, ours may not crash."""
    report = parity(tmp_path, {**BROKEN_INPUT, "quirks": ["cpus_lost"]})
    assert not report.ok
    assert "KeyError: 'providers'" in report.shown[0].crash


def test_a_broken_rule_fails_with_quirks(tmp_path: Path) -> None:
    """An answer to a vector with quirks is checked by the family's own rules."""
    report = parity(tmp_path, {**ODD, "input": {**SAME["input"], "policy": "no-such-policy"}})
    assert not report.ok
    assert "the kubelet got as far as merging" in report.shown[0].broken[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]\n", "some.jsonl:1: a vector is an object"),
        ("\nnot json\n", "some.jsonl:2: not JSON"),
        ('{"family": "merge", "id": 3}\n', '"id" (str)'),
        (json.dumps({**SAME, "quirks": "cpus_lost"}), '"quirks" is a list of names'),
    ],
)
def test_malformed_lines_name_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    """One sentence."""
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    with pytest.raises(BadVectorError) as caught:
        run(read_vectors(path))
    assert says in str(caught.value)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    """A .gz that ends early is an error of the file, not of a vector."""
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(SAME).encode() * 100)[:-20])
    with pytest.raises(BadVectorError, match=r"some\.jsonl\.gz:1: cannot be read"):
        run(read_vectors(path))


def test_nothing_read_fails(tmp_path: Path) -> None:
    """A file without vectors is no success."""
    assert not parity(tmp_path).ok


def test_a_family_without_a_module_fails_and_says_so(tmp_path: Path) -> None:
    """No module is no parity."""
    report = parity(tmp_path, {**SAME, "family": "no-such"})
    assert not report.ok
    assert "tests.parity.no_such" in report.shown[0].crash


def test_a_module_that_cannot_be_imported_fails_its_family_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other families are still run, and the reason is shown."""

    def broken(name: str) -> ModuleType:
        if name.endswith(".odd"):
            raise ImportError("cannot import name 'x'")
        return import_module(name)

    monkeypatch.setattr(running, "import_module", broken)
    report = parity(tmp_path, {**SAME, "family": "odd"}, SAME)
    assert (report.ok, report.read, report.different) == (False, 2, 1)
    assert "cannot import name 'x'" in report.shown[0].crash
