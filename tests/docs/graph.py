"""The import graph of agent/ in figures: `python -m tests.docs.graph` prints what stands now.

deploy/docs/dev/architecture.md has them in its table, before and after the rooms.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import grimp

DRAWN = ("agent.core", "agent.app", "agent.kube", "agent.host", "agent.engine", "agent.forecast", "agent.node")
"""Packages whose rooms (their direct children) are drawn; first come all modules, and the layers."""

Graph = Mapping[str, frozenset[str]]
"""What imports what."""


class GraphFigures(NamedTuple):
    """One drawing."""

    nodes: int
    arrows: int
    floors: int
    """Of a drawing in which every arrow points down; 0 where a circle forbids it."""


def figures() -> dict[str, GraphFigures]:
    """Of "modules", "layers" and each of `DRAWN`; modules that protoc made are left out."""
    imports = grimp.build_graph("agent", cache_dir=None)
    modules = {name for name in imports.modules if not name.endswith("_pb2")}
    whole = {name: frozenset(imports.find_modules_directly_imported_by(name) & modules) for name in modules}
    drawn = {each: _measured(_rooms(whole, each)) for each in DRAWN}
    return {"modules": _measured(whole), "layers": _measured(_rooms(whole, "agent")), **drawn}


def _rooms(whole: Graph, package: str) -> Graph:
    """The direct children of a package, each with all that is in it."""
    depth = package.count(".") + 2

    def room(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    inside = [name for name in whole if name.startswith(f"{package}.")]
    rooms: dict[str, set[str]] = {room(name): set() for name in inside}
    for name in inside:
        rooms[room(name)] |= {room(each) for each in whole[name] if each.startswith(f"{package}.")}
    return {name: frozenset(below - {name}) for name, below in rooms.items()}


def _measured(graph: Graph) -> GraphFigures:
    floors: dict[str, int] = {}
    try:
        for name in TopologicalSorter(graph).static_order():
            floors[name] = 1 + max((floors[each] for each in graph[name]), default=0)
    except CycleError:  # a graph with a circle has no floors, which the figures tell by 0
        floors.clear()
    return GraphFigures(len(graph), sum(map(len, graph.values())), max(floors.values(), default=0))


if __name__ == "__main__":
    for drawn, found in figures().items():
        print(f"{drawn:14}{found.nodes:6} nodes{found.arrows:6} arrows{found.floors:4} floors")
