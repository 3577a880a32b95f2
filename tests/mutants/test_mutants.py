"""The command that tests the tests: what it changes, what it chooses, what it says of what it saw."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.mutants import forks as forking
from tools.mutants import kept, report
from tools.mutants.choosing import Recordings
from tools.mutants.forks import Ended, Forks, Run
from tools.mutants.judging import KILLED, SURVIVED, TIMEOUT, UNJUDGED, Judge, Verdict, Verdicts, sample
from tools.mutants.operators import Mutant, mutants
from tools.mutants.session import by_line

SOURCE = '''\
"""Says nothing."""

LEAST = 3


def room(free: set[int], wanted: int) -> bool:
    """Whether there is room."""
    if wanted > LEAST and free:
        return len(free) - 1 >= wanted
    for each in free:
        free.discard(each)
    try:
        raise ValueError("too few")
    except (ValueError, KeyError):
        return False
'''


def changes(source: str = SOURCE) -> set[tuple[str, str, str]]:
    """Of a text: operator, what stands there, what is put there."""
    return {(each.operator, each.before, each.after) for each in mutants("a.py", source.encode())}


def test_every_kind_of_fault_is_made() -> None:
    """One of each operator, where somebody would look for it; none in words for people."""
    found = changes()
    assert {
        ("constant", "3", "4"), ("compare", "wanted > LEAST", "(wanted >= LEAST)"),
        ("compare", "wanted > LEAST", "(wanted <= LEAST)"),
        ("boolean", "wanted > LEAST and free", "(wanted > LEAST or free)"),
        ("operand", "wanted > LEAST and free", "(free)"), ("condition", "wanted > LEAST and free", "True"),
        ("arithmetic", "len(free) - 1", "(len(free) + 1)"), ("return", "len(free) - 1 >= wanted", "False"),
        ("loop", "free", "()"), ("statement", "free.discard(each)", "pass"),
        ("statement", "raise ValueError('too few')", "pass"),
        ("except", "(ValueError, KeyError)", "(KeyError,)"), ("return", "False", "True"),
    } <= found  # fmt: skip
    assert not [each for each in found if "too fewx" in each[2] or "Says" in each[1]]


def test_a_mutant_is_the_file_with_one_change_and_its_name_is_its_own() -> None:
    """Also where a line before it has characters of several bytes; the rest of the file stays as it is."""
    source = ("x = '\N{GREEK SMALL LETTER ALPHA}', 1\n" + SOURCE).encode()
    found = mutants("a.py", source)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        try:
            changed = each.apply(source)
        except SyntaxError:
            continue
        assert changed[: each.start] == source[: each.start]
        assert changed.endswith(source[each.end :])
        assert changed != source


def test_the_sample_is_the_seeds_and_a_change_elsewhere_leaves_its_order() -> None:
    """Two of core and engine for each of the rest."""
    core = mutants("agent/core/a.py", SOURCE.encode())
    rest = mutants("agent/kube/b.py", SOURCE.encode())
    one = sample([*core, *rest], 1)
    assert [each.path.split("/")[1] for each in one[:6]] == ["core", "core", "kube"] * 2
    assert one == sample([*rest, *core], 1) != sample([*core, *rest], 2)
    assert [each for each in one if each in core] == sample(core, 1)


def the(before: str, after: str) -> Mutant:
    """The mutant of SOURCE with this change."""
    found = [each for each in mutants("agent/a.py", SOURCE.encode()) if (each.before, each.after) == (before, after)]
    return found[0]


def recordings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Recordings:
    """One file of tests of which three are recorded: at the first return, at the loop, elsewhere."""
    where = {
        "t.py::test_first": (0.5, [2, 3]), "t.py::test_quick": (0.1, [2, 3]), "t.py::test_loop": (0.1, [2, 4, 5]),
        "t.py::test_endless": (99.0, [2, 3]),
    }  # fmt: skip
    tests = {
        name: {"seconds": seconds, "where": {"agent/a.py": {"room": lines}}}
        for name, (seconds, lines) in where.items()
    }
    monkeypatch.setattr("tools.mutants.choosing.blobs", lambda _tests: {"t.py": "b10b"})
    made = Recordings(folder, "c0ffee")
    said = {"commit": "c0ffee", "failed": [], "tests": tests}
    (folder / "recordings/b10b.json.gz").write_bytes(gzip.compress(json.dumps(said).encode()))
    made.load()
    return made


def test_the_tests_that_run_the_line_are_chosen_quickest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes too long alone is left out; what killed in this file before goes first."""
    made = recordings(tmp_path, monkeypatch)
    mutant = the("len(free) - 1 >= wanted", "False")
    assert made.choose(mutant, SOURCE.encode(), 60.0, {}).first == ("t.py::test_quick", "t.py::test_first")
    told = made.choose(mutant, SOURCE.encode(), 60.0, {"t.py::test_first": 3}).first
    assert told == ("t.py::test_first", "t.py::test_quick")
    assert made.choose(the("free.discard(each)", "pass"), SOURCE.encode(), 60.0, {}).first == ("t.py::test_loop",)
    here = f"tests/mutants/test_mutants.py::{test_the_tests_that_run_the_line_are_chosen_quickest_first.__name__}"
    names = ("t.py::test_quick", "t.py::test_gone", here, f"{here}_or_not", "u.py::test")
    assert [made.there(each) for each in names] == [True, False, True, False, False]
    assert len(made.choose(the("3", "4"), SOURCE.encode(), 60.0, {}).first) == 3, "at import: any test of the file"
    for path, tests in {"agent/names.py": 3, "agent/core/names.py": 0}.items():
        chosen = made.choose(replace(the("3", "4"), path=path), SOURCE.encode(), 60.0, {}).first
        assert len(chosen) == tests, "of a file of names alone: any test of the files beside it"


def test_a_fork_says_what_the_tests_said(tmp_path: Path) -> None:
    """A mutant dies, another lives, a third goes on for ever; the tree is as it was, and so is this process."""
    tree = tmp_path / "tree"
    (tree / "agent").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "agent/a.py").write_text("def double(n: int) -> int:\n    return 2 * n\n", "utf-8")
    (tree / "tests/test_a.py").write_text(
        "from agent.a import double\n\n\ndef test_two() -> None:\n    assert double(1) == 2\n", "utf-8"
    )
    (tree / "pyproject.toml").write_text("[tool.pytest]\naddopts = ['--import-mode=importlib']\n", "utf-8")
    test, text = "tests/test_a.py::test_two", "def double(n: int) -> int:\n    "
    runs = [
        (name, Run({"agent/a.py": (text + body).encode()}, limit, stages=[[test], [test]]))
        for name, body, limit in (
            ("dead", "return 3 * n\n", 60.0), ("alive", "return n + n\n", 60.0), ("endless", "while n: pass\n", 2.0)
        )
    ]  # fmt: skip
    forks = Forks(tree, tmp_path / "forks", 2, libraries=())
    ended = {name: each for name, _, each in forks.all(runs)}
    assert (ended["dead"].code, ended["dead"].failed) == (1, (test,))
    assert (ended["alive"].code, ended["alive"].failed, ended["alive"].ran) == (0, (), 1)
    assert ended["endless"].out_of_time
    assert "2 * n" in (tree / "agent/a.py").read_text("utf-8")
    assert not list((tmp_path / "forks").iterdir())


def test_time_without_a_cpu_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """25 seconds are too many where the limit allows 20, unless a busy machine gave no CPU in 10 of them."""
    monkeypatch.setattr(forking, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    with subprocess.Popen(["sleep", "60"]) as child:
        told = []
        for seconds in (10.0, 1.0):
            run = Run({}, 2.0, pid=child.pid, began=975.0, looked=0.0)
            monkeypatch.setattr(forking, "waiting_for_cpu", lambda _, waited=seconds: waited)
            told.append((forking.over(run), run.waited[child.pid], forking.over(run)))
        child.kill()
    assert told == [(False, 10.0, False), (True, 1.0, False)], "twice a second it is looked at, no oftener"


def test_a_recording_says_which_lines_each_test_ran(tmp_path: Path) -> None:
    """By function, counted from its first line."""
    tree = tmp_path / "tree"
    (tree / "agent").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "agent/a.py").write_text(
        "\ndef one() -> int:\n    return 1\n\ndef two() -> int:\n    return 2\n", "utf-8"
    )
    (tree / "tests/test_a.py").write_text(
        "from agent.a import two\ndef test_two():\n    assert two() == 2\n", "utf-8"
    )
    (tree / "pyproject.toml").write_text("[tool.pytest]\naddopts = ['--import-mode=importlib']\n", "utf-8")
    forks = Forks(tree, tmp_path / "forks", 1, libraries=())
    ((_, _, ended),) = forks.all([("", Run({}, 60.0, files=["tests/test_a.py"], record=True))])
    assert ended.recorded["tests/test_a.py::test_two"]["where"] == {"agent/a.py": {"two": [1]}}, ended.log


class Played(Forks):
    """Says what it is told of each run instead of running it: which test fails, and how many were not skipped."""

    def __init__(self, failing: Callable[[Run], str], ran: int = 1, code: int = 0) -> None:
        self._failing, self._number, self._code = failing, ran, code
        self.ran: list[Run] = []

    def all(self, runs: Iterable[tuple[Any, Run]]) -> Iterator[tuple[Any, Run, Ended]]:
        for key, run in runs:
            self.ran.append(run)
            failed = tuple(each for each in (self._failing(run),) if each and each not in run.skip)
            yield (
                key,
                run,
                Ended(
                    int(bool(failed)) or self._code,
                    out_of_time=False,
                    failed=failed,
                    ran=self._number,
                    seconds=0.0,
                    recorded={},
                    log="",
                ),
            )


def test_a_test_that_fails_without_a_change_kills_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mutant is judged anew by the others; a test that passes without a change is believed."""
    made = recordings(tmp_path, monkeypatch)
    (tmp_path / "tree/agent").mkdir(parents=True)
    (tmp_path / "tree/agent/a.py").write_text(SOURCE, "utf-8")
    wanted = [the("len(free) - 1 >= wanted", "False"), the("len(free) - 1", "(1)"), the("3", "4")]

    def failing(run: Run) -> str:
        change = run.change.get("agent/a.py", b"")
        if b"LEAST = 4" in change:
            return "t.py::test_loop"
        if "t.py::test_quick" not in run.skip:
            return "t.py::test_quick"  # whatever is run
        return "t.py::test_first" if b"return (1)" in change else ""

    forks = Played(failing)
    verdicts = Verdicts(tmp_path, "c0ffee")
    judge = Judge(tmp_path / "tree", forks, made, verdicts, commit="c0ffee", most_seconds=60.0)
    judge.run(wanted, float("inf"), lambda _verdict: None)
    assert {each.after: (each.verdict, each.by) for each in verdicts.known.values()} == {
        "False": (SURVIVED, ""), "(1)": (KILLED, "t.py::test_first"), "4": (KILLED, "t.py::test_loop"),
    }  # fmt: skip
    assert judge.false_alarms == ["t.py::test_quick"]


def test_a_few_files_are_tried_before_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What collects them anew has an answer soon, mostly; what takes long, or goes on for ever, must come twice."""
    made = recordings(tmp_path, monkeypatch)
    (tmp_path / "tree/agent").mkdir(parents=True)
    (tmp_path / "tree/agent/a.py").write_text(SOURCE, "utf-8")
    made.seconds = {f"{name}.py::test": 0.1 * number for number, name in enumerate("abcdef", 1)}
    monkeypatch.setattr(made, "_running", lambda *_: set(made.seconds))
    forks = Played(lambda run: "e.py::test" if run.change and "e.py::test" in run.stages[-1] else "")
    judge = Judge(tmp_path / "tree", forks, made, Verdicts(tmp_path, "c1"), commit="c1", most_seconds=60.0)
    judge.run([the("3", "4")], float("inf"), lambda _verdict: None)
    mutated, again, control = (run.stages for run in forks.ran)
    assert [len(each) for each in mutated] == [4, 2]
    assert again == control == [mutated[0], ("e.py::test",)]


def test_what_fails_once_and_passes_again_kills_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that waits for something may wait in vain on a busy machine: from then on it judges nothing."""
    made = recordings(tmp_path, monkeypatch)
    (tmp_path / "tree/agent").mkdir(parents=True)
    (tmp_path / "tree/agent/a.py").write_text(SOURCE, "utf-8")
    forks = Played(lambda run: "t.py::test_first" if run.change and not run.again else "")
    verdicts = Verdicts(tmp_path, "c1")
    judge = Judge(tmp_path / "tree", forks, made, verdicts, commit="c1", most_seconds=60.0)
    judge.run([the("len(free) - 1 >= wanted", "False")], float("inf"), lambda _verdict: None)
    assert [each.verdict for each in verdicts.known.values()] == [SURVIVED]
    assert judge.false_alarms == ["t.py::test_first"]


def test_what_cannot_be_imported_any_more_is_dead_though_no_test_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs at import alone is in no test's recording: each test notices that there is no product."""
    made = recordings(tmp_path, monkeypatch)
    (tmp_path / "tree/agent").mkdir(parents=True)
    (tmp_path / "tree/agent/a.py").write_text(SOURCE, "utf-8")
    monkeypatch.setattr(made, "_running", lambda *_: set())
    for code, word in ((4, KILLED), (0, SURVIVED)):
        forks, verdicts = Played(lambda _run: "", code=code), Verdicts(tmp_path, f"c{code}")
        judge = Judge(tmp_path / "tree", forks, made, verdicts, commit=f"c{code}", most_seconds=60.0)
        judge.run([the("3", "4")], float("inf"), lambda _verdict: None)
        assert [each.verdict for each in verdicts.known.values()] == [word]


def test_tests_that_are_skipped_judge_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they need is not here, a control plane for example: the mutant neither lives nor dies."""
    tree = tmp_path / "tree"
    (tree / "agent").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "agent/a.py").write_text(SOURCE, "utf-8")
    (tree / "tests/test_a.py").write_text(
        "import pytest\n\ndef test_two() -> None:\n    pytest.skip('no peer')\n", "utf-8"
    )
    (tree / "pyproject.toml").write_text("[tool.pytest]\naddopts = ['--import-mode=importlib']\n", "utf-8")
    forks = Forks(tree, tmp_path / "forks", 1, libraries=())
    ((_, _, ended),) = forks.all([("", Run({}, 60.0, stages=[["tests/test_a.py"]]))])
    assert (ended.code, ended.ran) == (0, 0)
    verdicts = Verdicts(tmp_path, "c0ffee")
    made = recordings(tmp_path, monkeypatch)
    judge = Judge(tree, Played(lambda _run: "", ran=0), made, verdicts, commit="c0ffee", most_seconds=60.0)
    judge.run([the("len(free) - 1", "(1)")], float("inf"), lambda _verdict: None)
    assert [each.verdict for each in verdicts.known.values()] == [UNJUDGED]


VERDICT = Verdict("agent/core/a.py::f::x", "agent/core/a.py", "f", "x", 7, "a | b", "a", KILLED, "t", 3, 0, 0.5, "c1")


def test_what_was_judged_is_known_to_the_next_run(tmp_path: Path) -> None:
    """Of the same commit all of it, of others who died; the line that a kill cut off is none."""
    Verdicts(tmp_path, "c1").add(VERDICT)
    Verdicts(tmp_path, "c1").add(replace(VERDICT, name="lives", verdict=SURVIVED))
    with (tmp_path / "verdicts/c1.jsonl").open("a") as file:
        file.write('{"name": "half')
    assert Verdicts(tmp_path, "c1").known.keys() == {VERDICT.name, "lives"}
    assert Verdicts(tmp_path, "c2").known == {}
    assert Verdicts(tmp_path, "c2").killed_before() == {VERDICT.name: VERDICT}


def test_who_died_is_kept_until_its_function_or_its_killer_changes(tmp_path: Path) -> None:
    """Another machine goes on from the file; what lives by now leaves it, and what was not judged again stays."""
    path, source, other = tmp_path / "killed.jsonl", SOURCE.encode(), SOURCE.replace("- 1", "- 2").encode()
    found = mutants("a.py", source)
    died, lives = found[0], found[-1]
    base = replace(VERDICT, path="a.py", by="tests/test_a.py::test_room")
    judged = [replace(base, name=each.name, function=each.function) for each in (died, lives)]
    texts = {"a.py": kept.fingerprints(source)}
    is_there = {"tests/test_a.py::test_room"}.__contains__
    assert kept.read(path) == {}
    kept.write({}, judged, texts, "c1", path)
    rows = kept.read(path)
    assert kept.dead(rows, found, texts, is_there).keys() == {died.name, lives.name}
    assert kept.dead(rows, found, texts, lambda _test: False) == {}
    changed = {"a.py": kept.fingerprints(other)}
    assert kept.dead(rows, mutants("a.py", other), changed, is_there) == {}
    again = [replace(judged[1], commit="c2", verdict=SURVIVED), replace(judged[0], commit="c3", verdict=SURVIVED)]
    assert [row[0] for row in kept.write(rows, again, texts, "c2", path)] == [died.name]


def test_a_function_is_known_by_its_text() -> None:
    """Its decorators belong to it, and a change of another function leaves it; names go from the outside in."""
    text = "class A:\n    @one\n    def f(self): return 1\n    def g(self): return 2\n"
    before = kept.fingerprints(text.encode())
    assert before.keys() == {"", "A", "A.f", "A.g"}
    for old, new, moved in (("@one", "@two", "A.f"), ("2", "3", "A.g")):
        after = kept.fingerprints(text.replace(old, new).encode())
        assert {name for name in before if before[name] != after[name]} == {"", "A", moved}


def test_the_report_names_every_survivor_and_counts_what_is_proven_apart() -> None:
    """A time-out is dead; the equivalent is neither; a cell of the table holds no bar."""
    lives, same = (replace(VERDICT, name=name, verdict=SURVIVED) for name in ("lives", "same"))
    late = replace(VERDICT, name="late", verdict=TIMEOUT, path="agent/kube/b.py")
    found = report.Result(7, "c1", 99, [VERDICT, lives, same, late], {"same": "a is b"})
    assert [each.name for each in found.survivors] == ["lives"]
    text = report.as_markdown(found)
    assert "| **core and engine** | 3 | 1 | 0 | 1 | 1 | 0 | 50.0 % |" in text
    assert "| **elsewhere** | 1 | 0 | 1 | 0 | 0 | 0 | 100.0 % |" in text
    assert r"| agent/core/a.py:7 | f | `a \| b` -> `a` | 3 |" in text
    said = json.loads(report.as_json(found))
    assert (said["seed"], said["judged"], said["killed_percent"]) == (7, 4, 66.67)


def test_lines_belong_to_the_innermost_function() -> None:
    """Classes are no functions; what runs at import belongs to none."""
    text = b"x = 1\nclass A:\n    y = 2\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    found = by_line(text)
    assert (found.get(3), found[4], found[6], found[7]) == (None, ("A.f", 4), ("A.f.g", 5), ("A.f", 4))
