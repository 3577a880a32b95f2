"""The places of the code that can refuse, and which of them `refusals` reached: so that no refusal is forgotten."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from agent.model.outcome import Refusal
from tests.docs.pages import ROOT

FOLDERS = ("agent/core", "agent/engine", "agent/forecast", "agent/node")
MAKERS = {"Refusal", "unexpected", "_full"}
READ_BACK = {"agent/core/explain/explainer.py"}
"""It makes a Refusal of a sentence that a record tells: nothing new."""
NOT_REACHED = {("agent/core/memory/provider.py", "unexpected(NO_EXTENSION)")}
"""Only where the kubelet's two accounts of reuse disagree; the sentence is that of `refusals.memory_no_extension`."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place of the code that makes a refusal."""

    path: str
    first: int
    last: int


def _parsed() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in READ_BACK:
                yield name, ast.parse(path.read_text("utf-8"))


def sites() -> Iterator[Site]:
    """All places that make a refusal."""
    for path, module in _parsed():
        for each in ast.walk(module):
            called = isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in MAKERS
            if isinstance(each, ast.Call) and called and (path, ast.unparse(each)) not in NOT_REACHED:
                yield Site(path, each.lineno, each.end_lineno or each.lineno)


def finals() -> Iterator[str]:
    """The words for which a wait ends for good."""
    for _, module in _parsed():
        for each in ast.walk(module):
            if isinstance(each, ast.Dict):
                for key, value in zip(each.keys, each.values, strict=True):
                    if isinstance(key, ast.Name) and key.id == "FINAL" and isinstance(value, ast.Constant):
                        yield str(value.value)


def texts() -> Iterator[tuple[str, str]]:
    """Sentences that are constants of a module that refuses: (name, text)."""
    there = {site.path for site in sites()} | {"agent/core/cpus/pods.py", "agent/core/admission/waiting.py"}
    for path, module in _parsed():
        for each in module.body if path in there else ():
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                text, name = each.value.value, ast.unparse(each.targets[0])
                if isinstance(text, str) and " " in text and name.isupper():
                    yield f"{path}:{name}", text


def resize_texts() -> Iterator[str]:
    """What follows the prefix of a resize that is not followed: the f-strings, "*" for what is filled in."""
    path = ROOT / "agent/core/admission/resize.py"
    for each in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(each, ast.JoinedStr) and isinstance(each.values[0], ast.FormattedValue):
            first = each.values[0].value
            if isinstance(first, ast.Name) and first.id == "PREFIX":
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in each.values[1:])


class Recorder:
    """Notes which lines of the code make refusals while it is entered."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.finals: set[str] = set()
        self._init = Refusal.__init__

    def __enter__(self) -> Self:
        def noted(this: Refusal, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as they come
            for depth in (1, 2):
                frame = sys._getframe(depth)  # noqa: SLF001 - who calls
                self.lines.add((frame.f_code.co_filename.removeprefix(f"{ROOT}/"), frame.f_lineno))
            self._init(this, *args, **kwargs)
            if "final" in this.facts:
                self.finals.add(str(this.facts["final"]))

        Refusal.__init__ = noted  # type: ignore[assignment, method-assign]  # watched while the page is made
        return self

    def __exit__(self, *_: object) -> None:
        Refusal.__init__ = self._init  # type: ignore[method-assign]  # watched while the page is made

    def reached(self, site: Site) -> bool:
        return any(path == site.path and site.first <= line <= site.last for path, line in self.lines)
