"""`numalign release --cluster`: asks every agent to put its node back, waits for each one's word, names who remains.

Run by the chart's pre-delete hook (safety.md S18). It needs to read one DaemonSet and the pods of one namespace, and
to annotate the latter; a pod that comes late (its node was rebooting, or it was replaced) is asked as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.request.annotations import RELEASE
from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.farewell import Agents, ReleaseAnswer, agents_of, annotate, answer_of, request_of

EVERY = 1.0
"""Seconds between looks."""


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """What is known of one node at the end.

    Attributes:
        node: its name; "" where a node has no agent that could be named.
        answer: None where none came.
        why: what stands in the way of an answer.
    """

    node: str
    answer: ReleaseAnswer | None = None
    why: str = ""

    @property
    def released(self) -> bool:
        """Nobody is confined there any more."""
        return self.answer is not None and self.answer.clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whom to ask.

    Attributes:
        client: the API.
        namespace, daemonset: of the agents.
        request: tells this request from earlier ones.
        within: seconds to wait for all of them.
        tell: told of each node's word as it comes, and of the API's refusals.
        clock, sleep: seconds.
    """

    client: KubeClient
    namespace: str
    daemonset: str
    request: str
    within: float
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def all(self) -> tuple[NodeProgress, ...]:
        """Ask, wait and gather: one word per node, by name; nodes without an agent come last."""
        until, words = self.clock() + self.within, dict[str, NodeProgress]()
        agents: Agents | None = None
        while True:
            try:
                agents = self._look(words)
            except KubeError as error:
                self.tell(str(error))
            if agents is not None and self._complete(agents, words):
                break
            if self.clock() >= until:
                break
            self.sleep(min(EVERY, max(0.0, until - self.clock())))
        return self._gathered(agents, words)

    def _look(self, words: dict[str, NodeProgress]) -> Agents:
        agents = agents_of(self.client, self.namespace, self.daemonset)
        for pod in agents.pods:
            node = str((pod.get("spec") or {}).get("nodeName") or "")
            answer = answer_of(pod)
            if answer is not None and answer.asked == self.request:
                if node not in words or words[node].answer is None:
                    self.tell(f"{node}: {sentence(answer)}")
                words[node] = NodeProgress(node, answer)
            elif node not in words or words[node].answer is None:
                words[node] = NodeProgress(node, None, _why(pod))
            if request_of(pod) != self.request and "deletionTimestamp" not in pod["metadata"]:
                self._ask(pod)
        return agents

    def _ask(self, pod: Mapping[str, Any]) -> None:
        try:
            annotate(self.client, self.namespace, str(pod["metadata"]["name"]), RELEASE, self.request)
        except KubeError as error:
            self.tell(f"{pod['metadata']['name']} could not be asked: {error}")

    def _complete(self, agents: Agents, words: Mapping[str, NodeProgress]) -> bool:
        answered = [word for word in words.values() if word.answer is not None]
        return len(answered) >= max(agents.wanted, len(agents.pods))

    def _gathered(self, agents: Agents | None, words: Mapping[str, NodeProgress]) -> tuple[NodeProgress, ...]:
        if agents is None:
            return (NodeProgress("", None, "the API server did not answer: no agent was asked"),)
        found = [words[node] for node in sorted(words) if node]
        missing = max(agents.wanted - len(found), 0)
        return (*found, *[NodeProgress("", None, "the DaemonSet has no pod on it")] * missing)


def sentence(answer: ReleaseAnswer) -> str:
    """What a node did, for people."""
    rest = f"; {answer.named} cgroups have everything and name it" if answer.named else ""
    rest += f"; {answer.untold} pods still carry annotations" if answer.untold else ""
    if answer.clean:
        return f"released, {answer.writes} writes{rest}"
    more = f" and {len(answer.confined) - 1} more" if len(answer.confined) > 1 else ""
    return f"still confined: {answer.confined[0] if answer.confined else 'unknown'}{more}{rest}"


def _why(pod: Mapping[str, Any]) -> str:
    """What a pod that does not answer looks like."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return f"its pod {name} is being deleted"
    phase = status.get("phase", "Pending")
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ()
    )
    if phase == "Running" and not ready:
        return f"its pod {name} is not ready: the node may be down"
    return f"no answer of its pod {name}" if phase == "Running" else f"its pod {name} is {phase}"
