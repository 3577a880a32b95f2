"""One life of the agent over a folder of manifests, killed as told. Started by `tests.matrix.agents`.

An order has `options`, of the agent; `steps`, the file that counts effects; `at`, where it is killed before an effect
of that number; `coarse`, where effects are the engine's and the save's alone, and a kernel's write is one piece.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.host.scratch.store import TreeFolder
from agent.observe import logs


def live(order: dict[str, Any]) -> int:
    """Serve once; the exit code."""
    file, count = Path(order["steps"]), 0

    def step(_name: str) -> None:
        nonlocal count
        count += 1
        file.write_text(str(count), "ascii")
        if count == order.get("at"):
            os.kill(os.getpid(), signal.SIGKILL)

    def announced(function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - of any function
            step("")
            return function(*given, **named)

        return stepped

    # Boundaries inside effects: within the save (write, sync, rename, sync), and between the files of a cgroup.
    inside = (os, "fsync"), (os, "replace"), (TreeFolder, "make"), (TreeFolder, "put"), (TreeFolder, "remove")
    for owner, name in inside[:1] if order.get("coarse") else inside:
        setattr(owner, name, announced(getattr(owner, name)))
    paths = {key: Path(order["options"][key]) for key in ("pods", "state", "config")}
    logs.setup("text", "error")
    with standalone_node(StandaloneOptions(**{**order["options"], **paths}), steps=step) as node:
        node.once()
    return 0
