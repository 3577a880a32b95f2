"""A node whose pods carry as much as the API takes, and the real agent on it, as a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.matrix.agents import Agent
from tests.matrix.journal import Journal
from tests.matrix.node import Node

PODS = 110
"""The kubelet's default of pods on a node."""
ANNOTATIONS = 262_144
"""Bytes that the API takes of a pod's annotations; a control character is one of them, and six in JSON."""


class OwnProcesses:
    """Starts each agent as a Python of its own (`tests.matrix.agents.Agents` forks, and shares memory with tests)."""

    def start(self, order: dict[str, Any]) -> Agent:
        """As `Agents.start`."""
        agent = Agent(Path(order["log"]), Journal(Path(order["tree"])))
        code = "import json, sys; from tests.matrix.life import live; sys.exit(live(json.loads(sys.argv[1])))"
        with Path(order["log"]).open("ab") as log:
            process = subprocess.Popen([sys.executable, "-c", code, json.dumps(order)], stdout=log, stderr=log)
        agent.pid = process.pid

        def reap() -> None:
            agent.code = process.wait()
            agent.ended.set()

        threading.Thread(target=reap, daemon=True).start()
        agent.forked.set()
        return agent


def fat(number: int) -> dict[str, str]:
    """Annotations of a hostile pod: control characters up to the API's limit, of which numalign's name some."""
    keys = ["example.com/a", "numalign.io/policy", "numalign.io/assignment", "numalign.io/cpus"]
    size = ANNOTATIONS // len(keys) - 64
    return dict.fromkeys(keys, "\u0001" * size) | {"example.com/number": str(number)}


@contextmanager
def node(folder: Path) -> Iterator[Node]:
    """A node without pods or agent."""
    with Node(folder, OwnProcesses(), nri=False, podresources=False) as made:  # type: ignore[arg-type] # starts the same
        yield made


def fatten(made: Node, number: int) -> None:
    """A hostile pod, new or changed."""
    name = f"hostile/evil-{number}"
    if made.api.get("pods", name):
        made.api.change("pods", name, lambda body: body["metadata"]["annotations"].update({"example.com/b": "again"}))
    else:
        made.create(name, cpu="", annotations=fat(number))


def bomb(made: Node) -> None:
    """A pod of 270,000 parts, which are 4 MiB of JSON and twenty times that in memory."""
    spec = {"containers": [{"name": "c", "env": [{"name": "a"}] * 270_000}]}
    made.create("hostile/bomb", cpu="", spec=spec)


def peak(made: Node) -> float:
    """MiB of memory that the agent had at most (VmHWM)."""
    assert made.agent is not None
    text = Path(f"/proc/{made.agent.pid}/status").read_text("ascii")
    found = re.search(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def wait(made: Node, true: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fails where the agent ends first."""
    until = time.monotonic() + 240
    while not true():
        assert made.agent is not None
        assert made.agent.alive, f"the agent ended\n{made.words()[-3000:]}"
        assert time.monotonic() < until, f"never: {what}\n{made.words()[-3000:]}"
        time.sleep(0.1)
