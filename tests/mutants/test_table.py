"""The kept table and the proofs fit today's code, and the table's report names what it is of."""

from __future__ import annotations

from pathlib import Path

from tests.docs import citations
from tools.mutants import report, table
from tools.mutants.judging import KILLED
from tools.mutants.places import ROOT, product


def test_the_kept_table_can_be_put_into_todays_code() -> None:
    """Each entry says why it matters and who notices; the names of tests are those of files that are there."""
    files, entries = product(ROOT), table.entries()
    assert len({each.name for each in entries}) == len(entries) >= 39
    for each in entries:
        assert each.why
        assert bool(each.by) != bool(each.equivalent), each.name
        assert all((ROOT / test.partition("::")[0]).exists() for test in each.by), each.name
        mutant = table.mutant(ROOT, each, files)
        assert mutant is not None, f"{each.name}: its text is in today's code no more"
        mutant.apply((ROOT / mutant.path).read_bytes())


def test_every_finding_has_a_fault_that_brings_it_back() -> None:
    """It can be put into today's code, and no tests but the finding's own are asked whether they notice it."""
    entries, tests = [each for each in table.entries() if each.finding], citations.findings()
    assert len(set(tests.values())) >= 35
    assert {each.finding for each in entries} == set(tests.values())
    for each in entries:
        assert {tests.get(test, "") for test in table.tests_of(each).first} == {each.finding}, each.name


def test_a_fault_may_be_put_into_a_manifest(tmp_path: Path) -> None:
    """A rule that is no Python is found by its text and changed, whatever else is in its file."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/policy.yaml").write_text("rule: >-\n  k in ['a',\n  'b'] && true\n", "utf-8")
    entry = table.Entry("owners", "deploy/policy.yaml", "k in ['a', 'b']", "k in ['a']", "why")
    mutant = table.mutant(tmp_path, entry, [])
    assert mutant is not None
    source = (tmp_path / "deploy/policy.yaml").read_bytes()
    assert mutant.apply(source) == b"rule: >-\n  k in ['a'] && true\n"


def test_the_report_of_the_kept_table_names_findings(tmp_path: Path) -> None:
    """Each row has the fault, its finding, what it does, and the test that noticed it."""
    rows = [
        report.Row("finding-07-lost", "7", "nobody is told", KILLED, "tests/a.py::test_told"),
        report.Row("old", "", "a | b", "gone", "its text is in today's code no more"),
    ]
    text = report.as_markdown(report.Result(1, "c1", table=rows))
    assert "| finding-07-lost | 7 | nobody is told | killed | test_told |" in text
    assert r"| old |  | a \| b | gone | its text is in today's code no more |" in text
    assert "1 of 2 are noticed" in text


def test_a_proof_names_a_mutant_of_a_file_that_is_there() -> None:
    """A proof for a file that went away proves nothing any more."""
    for name in table.equivalents():
        assert (ROOT / name.partition("::")[0]).exists(), name
