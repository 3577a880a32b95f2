"""Names in the code say one thing each."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.docs.pages import ROOT


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name, or searches for it, finds one class."""
    found = defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "agent").rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            for each in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(each, ast.ClassDef):
                    found[each.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
