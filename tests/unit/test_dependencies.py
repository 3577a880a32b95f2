"""What the agent imports is declared: no library is there only because another one needs it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported() -> dict[str, str]:
    """Package -> a module of agent/ that imports it when it runs; not the standard library, not the agent itself."""
    found = {}
    for path in sorted((ROOT / "agent").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        tree.body = [node for node in tree.body if ast.unparse(node).splitlines()[0] != "if TYPE_CHECKING:"]
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top != "agent" and top not in sys.stdlib_module_names:
                    found[top] = str(path.relative_to(ROOT))
    return found


def declared() -> set[str]:
    """The distributions of pyproject.toml's dependencies, by their normal names."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return {normal(re.split(r"[<>=!~ \[;]", line)[0]) for line in lines}


def normal(name: str) -> str:
    """A distribution's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_a_declared_dependency() -> None:
    """An import of a library that only kopf or the Kubernetes client brings would break when they stop needing it."""
    owners, known = packages_distributions(), declared()
    found = imported()
    assert {"aiohttp", "urllib3", "google", "yaml"} <= found.keys()
    missing = {name: where for name, where in found.items() if known.isdisjoint(map(normal, owners.get(name, ())))}
    assert not missing


def test_every_declared_dependency_is_imported() -> None:
    """Nothing is installed that the agent does not use."""
    owners = packages_distributions()
    used = {normal(each) for name in imported() for each in owners.get(name, ())}
    assert not declared() - used
