"""What the comparison of two revisions' benchmarks reads out of their tables."""

from __future__ import annotations

from pathlib import Path

from tools.bench.compare import medians, rows

MERGE = """microseconds per merge (times faster than Go); ! = goal missed
case                       Go              lists      not preferred            demands      not preferred
two-nodes                 0.8      4.5    (0.2x)      9.1    (0.1x)     27.6    (0.0x)     39.6    (0.0x)
"""
NODE = """case                                                        result        goal
restart (files, v2)                                       1,476 ms    1,000 ms ! missed
  writes (files, v2)                                          752
burst, p50 (kernel, v1)                                     198 ms
  p99                                                       351 ms    1,000 ms
"""
SIMULATE = """pods                                          10,000
10,000 pods, 100 machines, 2 policies: 4.7 s, 4.5 s of CPU; goal 60 s each
"""


def test_every_time_is_read_with_its_row_and_column() -> None:
    """The peer's column, counts and goals are left out; a column of a name that is there twice is named by both."""
    assert dict(rows(MERGE)) == {
        "two-nodes, lists": 4.5, "two-nodes, lists, not preferred": 9.1,
        "two-nodes, demands": 27.6, "two-nodes, demands, not preferred": 39.6,
    }  # fmt: skip
    assert dict(rows(NODE)) == {
        "restart (files, v2)": 1476, "burst, p50 (kernel, v1)": 198, "burst, p50 (kernel, v1), p99": 351,
    }  # fmt: skip
    assert dict(rows(SIMULATE)) == {"10,000 pods": 4700}


def test_a_row_is_the_median_of_its_rounds(tmp_path: Path) -> None:
    """One round that something else disturbed does not count."""
    for number, seconds in enumerate((4.0, 90.0, 4.2), 1):
        (tmp_path / f"simulate.new.{number}").write_text(f"policies: {seconds} s, ")
    assert medians(tmp_path, "simulate", "new") == {"10,000 pods": 4200}
    assert not medians(tmp_path, "simulate", "old")
