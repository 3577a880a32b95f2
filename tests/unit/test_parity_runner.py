"""The parity runner itself: a runner that cannot fail would prove nothing."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.parity import running
from tests.parity.__main__ import main
from tests.parity.choose import main as choose

SAME: dict[str, Any] = {
    "family": "merge",
    "id": "same",
    "input": {"numa_nodes": [0, 1], "policy": "restricted", "providers": [{"cpu": [[1, 1], [2, 1], [3, 0]]}]},
    "expected": {"hint": [1, 1], "admit": True},
}
OTHER = {**SAME, "id": "other", "expected": {"hint": [2, 1], "admit": True}}
ODD = {**SAME, "id": "odd", "expected": {"init_error": "no"}, "quirks": ["cpus_lost"]}
BROKEN_INPUT = {**SAME, "id": "crash", "input": {"numa_nodes": [0], "policy": "restricted"}}


def parity(tmp_path: Path, vectors: list[dict[str, Any]], *options: str) -> Result:
    """Run the command on a file of vectors."""
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(vector) + "\n" for vector in vectors))
    return CliRunner().invoke(main, [str(path), *options])


def test_identical_answers_pass_and_are_counted(tmp_path: Path) -> None:
    """Exit code 0, quirks apart with what was answered instead."""
    result = parity(tmp_path, [SAME, ODD])
    assert result.exit_code == 0
    assert "merge: 1 identical, 0 different, 1 with quirks" in result.output
    assert "cpus_lost: 1 x we answered admit, hint instead of init_error" in result.output


def test_a_difference_fails_and_is_shown_in_full(tmp_path: Path) -> None:
    """Exit code 1; id, line, expected, got, and the place."""
    result = parity(tmp_path, [SAME, OTHER])
    assert result.exit_code == 1
    assert "--- other" in result.output
    assert "some.jsonl:2" in result.output
    assert 'expected {"hint": [2, 1]' in result.output
    assert "hint.0: expected 2, got 1" in result.output
    assert "merge: 1 identical, 1 different" in result.output


def test_a_crash_fails_even_with_quirks(tmp_path: Path) -> None:
    """Whatever the kubelet does, ours may not crash."""
    result = parity(tmp_path, [{**BROKEN_INPUT, "quirks": ["cpus_lost"]}])
    assert result.exit_code == 1
    assert "KeyError: 'providers'" in result.output


def test_a_broken_rule_fails_with_quirks(tmp_path: Path) -> None:
    """An answer to a vector with quirks is checked by the family's own rules."""
    refused = {**ODD, "input": {**SAME["input"], "policy": "no-such-policy"}}
    result = parity(tmp_path, [refused])
    assert result.exit_code == 1
    assert "breaks a rule: the kubelet got as far as merging" in result.output


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
    """Exit code 2 and one sentence."""
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 2
    assert says in result.output


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    """A .gz that ends early is an error of the file, not of a vector."""
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(SAME).encode() * 100)[:-20])
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 2
    assert "some.jsonl.gz:1: cannot be read" in result.output


def test_nothing_read_fails(tmp_path: Path) -> None:
    """A filter that matches nothing is no success."""
    result = parity(tmp_path, [SAME], "--id", "nobody")
    assert result.exit_code == 1
    assert "nothing was read" in result.output


def test_a_family_without_a_module_fails_and_says_so(tmp_path: Path) -> None:
    """No module is no parity."""
    result = parity(tmp_path, [{**SAME, "family": "no-such"}])
    assert result.exit_code == 1
    assert "no tests/parity/no_such.py" in result.output


def test_a_module_that_cannot_be_imported_fails_its_family_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other families are still run, and the reason is shown."""

    def broken(name: str) -> ModuleType:
        if name.endswith(".odd"):
            raise ImportError("cannot import name 'x'")
        return import_module(name)

    monkeypatch.setattr(running, "import_module", broken)
    result = parity(tmp_path, [{**SAME, "family": "odd"}, SAME])
    assert result.exit_code == 1
    assert "cannot import name 'x'" in result.output
    assert "odd: 0 identical, 1 different" in result.output
    assert "merge: 1 identical, 0 different" in result.output


def test_filters(tmp_path: Path) -> None:
    """--limit, --family and --id choose vectors."""
    assert "1 identical, 0 different" in parity(tmp_path, [SAME, OTHER], "--limit", "1").output
    assert "1 identical, 0 different" in parity(tmp_path, [SAME, OTHER], "--id", "same").output
    assert "1 identical, 1 different" in parity(tmp_path, [SAME, OTHER], "--family", "merge").output


def test_choosing_covers_what_the_whole_covers(tmp_path: Path) -> None:
    """Of many alike and one that differs, the one is in, within the size; the same choice each time."""
    source, target = tmp_path / "all.jsonl", tmp_path / "part.jsonl.gz"
    vectors = [{**SAME, "id": f"same-{n}"} for n in range(300)]
    vectors.insert(100, {**ODD, "id": "the-one"})
    source.write_text("".join(json.dumps(vector) + "\n" for vector in vectors))
    for _ in range(2):
        result = CliRunner().invoke(choose, [str(source), str(target), "--kib", "1"])
        assert result.exit_code == 0
        chosen = [json.loads(line) for line in gzip.decompress(target.read_bytes()).splitlines()]
        assert {**ODD, "id": "the-one"} in chosen
        assert target.stat().st_size <= 1024
        assert len(chosen) < 300


@pytest.mark.parametrize("quirk", ["panic", "hang"])
def test_what_ends_a_kubelet_is_never_chosen(tmp_path: Path, quirk: str) -> None:
    """Such an input is left out even where it is asked for, and covers what no other does."""
    source, target = tmp_path / "all.jsonl", tmp_path / "part.jsonl.gz"
    source.write_text("".join(json.dumps(each) + "\n" for each in (SAME, {**ODD, "quirks": [quirk]}, OTHER)))
    result = CliRunner().invoke(choose, [str(source), str(target), "--always", "odd"])
    assert result.exit_code == 0
    assert {json.loads(line)["id"] for line in gzip.decompress(target.read_bytes()).splitlines()} == {"same", "other"}
