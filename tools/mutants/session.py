"""What runs inside pytest: chooses tests, orders them, says which failed, and records what each of them runs."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import Phase, settings

from tools.mutants.entering import waiting_for_cpu
from tools.mutants.places import EXAMPLES, SLOW_FIXTURES, SLOW_MARKS

Where = dict[str, dict[str, list[int]]]
"""File -> function -> lines, counted from the function's first."""


class Session:
    """A plugin for one run of pytest.

    Args:
        chosen: node ids, functions or files in the order in which they are to run; None for all that are fast.
        watched: the tree whose folder agent/ is watched, None for a run that records nothing.
        skip: tests that do not run.
    """

    def __init__(self, chosen: Sequence[str] | None, watched: Path | None, skip: Sequence[str] = ()) -> None:
        self._skip = frozenset(skip)
        self._order = None if chosen is None else {name: place for place, name in enumerate(chosen)}
        self._watched = watched
        self._coverage: coverage.Coverage | None = None
        self.failed: list[str] = []
        """Tests that failed, and modules that could not be imported."""
        self.seconds: dict[str, float] = {}
        self.passed: set[str] = set()

    def start(self) -> None:
        """Before anything of the product is imported."""
        if self._watched is not None:
            self._coverage = coverage.Coverage(
                data_file=None, config_file=False, include=[f"{self._watched}/agent/*"], messages=False
            )
            self._coverage.start()

    def begin(
        self, items: Mapping[str, pytest.Item], chosen: Sequence[str], skip: Sequence[str], watched: Path | None
    ) -> list[pytest.Item]:
        """In a fork of a process that has collected everything: what is to run, in its order; files where watched."""
        self.failed.clear()
        if watched is None:
            return [items[each] for each in chosen if each in items and each not in skip]
        self._watched = watched
        self.start()
        return [each for name, each in items.items() if name.partition("::")[0] in chosen]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """The same examples in every run, and no search for the smallest one that fails: the first is enough."""
        settings.register_profile(
            "mutants", settings.default, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Only what is chosen, in its order."""
        order = self._order
        if order is None:
            kept = [each for each in items if not _slow(each)]
        else:
            places = {each: _place(each.nodeid, order) for each in items}
            kept = sorted((each for each in items if places[each] is not None), key=lambda each: places[each] or 0)
        kept = [each for each in kept if each.nodeid not in self._skip]
        for each in kept:
            function = getattr(each, "obj", None)
            asked = getattr(function, "_hypothesis_internal_use_settings", None)
            if asked is not None and asked.max_examples > EXAMPLES:
                few = settings(asked, max_examples=EXAMPLES)
                setattr(getattr(function, "__func__", function), "_hypothesis_internal_use_settings", few)  # noqa: B010 - a name that mypy knows nothing of
        wanted = set(kept)
        config.hook.pytest_deselected(items=[each for each in items if each not in wanted])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Lines that run from here are this test's."""
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid)
        began, waited = time.monotonic(), waiting_for_cpu()
        try:
            return (yield)
        finally:  # a machine with other work makes no test slow
            self.seconds[item.nodeid] = max(0.0, time.monotonic() - began - (waiting_for_cpu() - waited))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module of tests that cannot be imported notices, too."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call and clean-up each bring one."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def said(self) -> dict[str, Any]:
        """What is told of the run: `failed`, `ran`, `recorded`."""
        return {
            "failed": self.failed, "ran": len(self.passed.union(self.failed)),
            "recorded": self.recorded() if self._watched is not None else {},
        }  # fmt: skip

    def recorded(self) -> dict[str, Any]:
        """Test -> its seconds and where it was, of those that passed."""
        where: dict[str, Where] = {name: {} for name in self.passed - set(self.failed)}
        if self._coverage is not None and self._watched is not None:
            self._coverage.stop()
            data = self._coverage.get_data()
            for path in sorted(data.measured_files()):
                name = str(Path(path).relative_to(self._watched))
                functions = by_line(Path(path).read_bytes())
                for line, tests in data.contexts_by_lineno(path).items():
                    if line in functions:
                        function, first = functions[line]
                        for test in where.keys() & tests:
                            where[test].setdefault(name, {}).setdefault(function, []).append(line - first)
        return {name: {"seconds": self.seconds[name], "where": where[name]} for name in where}


def by_line(source: bytes) -> dict[int, tuple[str, int]]:
    """Line -> the innermost function around it and that one's first line; lines outside of functions are absent."""
    found: dict[int, tuple[str, int]] = {}

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    lines = range(child.lineno, (child.end_lineno or child.lineno) + 1)
                    found.update(dict.fromkeys(lines, (inner, child.lineno)))
            walk(child, inner)

    walk(ast.parse(source), "")
    return found


def _place(test: str, order: dict[str, int]) -> int | None:
    """Of a test in the order, which may name all of a function's tests, or of a file's."""
    names = (test, test.partition("[")[0], test.partition("::")[0])
    return next((order[each] for each in names if each in order), None)


def _slow(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(fixtures & SLOW_FIXTURES) or any(mark.name in SLOW_MARKS for mark in item.iter_markers())
