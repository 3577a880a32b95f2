"""`numalign release --cluster`: asks every agent to release its node, waits for the answers, names nodes without one.

Run by the chart's pre-delete hook: uninstalling keeps no grant (safety rule S18). It needs the rights to read one
DaemonSet and all pods, and to annotate those of one namespace. A pod that comes late (its node was rebooting, or it
was replaced) is asked as well.

A node whose agent never started is not waited for: after a failed first installation there is nothing to release, and
no agent to answer. That no container of its pod started proves little, as the pod may be a new one. But every agent
writes to the pods of its node, so a node where no pod carries a report was never touched. A node in doubt is waited
for, and named.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.request.annotations import RELEASE
from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.decommission import (
    Agents,
    ReleaseAnswer,
    agents_of,
    annotate,
    answer_of,
    never_began,
    nodes_with_reports,
    request_of,
)  # fmt: skip

EVERY = 1.0
"""Seconds between looks."""
SETTLED = 10.0
"""Seconds without a start of an agent before the pods are read for traces of one; and between two such reads."""
UNTOUCHED = "no container of an agent started there, and no pod carries a word of one: nothing to release"


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """The outcome on one node.

    Attributes:
        node: its name; "" where a node has no agent that could be named.
        answer: None where none came.
        why: the reason why there is no answer.
        untouched: no agent ever started there.
    """

    node: str
    answer: ReleaseAnswer | None = None
    why: str = ""
    untouched: bool = False

    @property
    def released(self) -> bool:
        """No container is confined there, or none is any more."""
        return self.untouched or (self.answer is not None and self.answer.clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCoordinator:
    """The question to all agents of a DaemonSet.

    Attributes:
        client: the API.
        namespace, daemonset: of the agents.
        request: the name of this request, other than that of earlier ones.
        within: seconds to wait for all answers.
        tell: called with each node's outcome as it comes, and with the API's refusals.
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
        """Ask, wait and gather: one outcome per node, by name; nodes without an agent come last."""
        until, words = self.clock() + self.within, dict[str, NodeProgress]()
        agents: Agents | None = None
        ask_at = self.clock() + SETTLED
        while True:
            try:
                agents = self._look(words)
                if not self._only_unbegun(agents, words):
                    ask_at = self.clock() + SETTLED
                elif self.clock() >= ask_at and not self._complete(agents, words):
                    ask_at = self.clock() + SETTLED
                    self._excuse(agents, words)
            except KubeError as error:
                self.tell(str(error))
            if agents is not None and self._complete(agents, words):
                break
            if self.clock() >= until:
                break
            self.sleep(min(EVERY, max(0.0, until - self.clock())))
        return self._gathered(agents, words)

    def _only_unbegun(self, agents: Agents, words: Mapping[str, NodeProgress]) -> bool:
        """Return True if all nodes without an answer have an agent that has not started, or no agent."""
        silent = {node for node, word in words.items() if word.answer is None and not word.untouched}
        begun = {_node_of(pod) for pod in agents.pods if not never_began(pod)}
        return not silent & begun

    def _excuse(self, agents: Agents, words: dict[str, NodeProgress]) -> None:
        """Stop waiting for nodes that no agent ever touched; name the touched nodes that have no agent now."""
        told = nodes_with_reports(self.client)
        silent = [node for node, word in words.items() if word.answer is None and not word.untouched]
        for node in silent:
            if node not in told:
                words[node] = NodeProgress(node, None, UNTOUCHED, untouched=True)
        for node in told - words.keys():
            words[node] = NodeProgress(node, None, "it has no agent, and pods there carry the word of one")
        if not told - {_node_of(pod) for pod in agents.pods}:  # else one that has none may be one of those
            for number in range(agents.wanted - len(words)):
                words[f"#{number}"] = NodeProgress("", None, UNTOUCHED, untouched=True)

    def _look(self, words: dict[str, NodeProgress]) -> Agents:
        agents = agents_of(self.client, self.namespace, self.daemonset)
        for pod in agents.pods:
            node = _node_of(pod)
            answer = answer_of(pod)
            if answer is not None and answer.asked == self.request:
                if node not in words or words[node].answer is None:
                    self.tell(f"{node}: {sentence(answer)}")
                words[node] = NodeProgress(node, answer)
            elif node not in words or (words[node].answer is None and not words[node].untouched):
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
        answered = [word for word in words.values() if word.answer is not None or word.untouched]
        return len(answered) >= max(agents.wanted, len(agents.pods))

    def _gathered(self, agents: Agents | None, words: Mapping[str, NodeProgress]) -> tuple[NodeProgress, ...]:
        if agents is None:
            return (NodeProgress("", None, "the API server did not answer: no agent was asked"),)
        found = sorted((word for node, word in words.items() if node), key=lambda word: (not word.node, word.node))
        missing = max(agents.wanted - len(found), 0)
        return (*found, *[NodeProgress("", None, "the DaemonSet has no pod on it")] * missing)


def _node_of(pod: Mapping[str, Any]) -> str:
    """Return the node of a DaemonSet's pod: until it is scheduled, its affinity names the one node."""
    spec = pod.get("spec") or {}
    with contextlib.suppress(KeyError, IndexError, TypeError):  # no node yet: the next one looks
        return str(spec["nodeName"])
    with contextlib.suppress(KeyError, IndexError, TypeError):  # nor one that it is meant for
        wanted = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fields = wanted["nodeSelectorTerms"][0]["matchFields"]
        return str(next(iter(each["values"][0] for each in fields if each["key"] == "metadata.name"), ""))
    return ""


def sentence(answer: ReleaseAnswer) -> str:
    """Return a sentence on what a node did."""
    rest = f"; {answer.named} cgroups have everything and name it" if answer.named else ""
    rest += f"; {answer.untold} pods still carry annotations" if answer.untold else ""
    if answer.clean:
        return f"released, {answer.writes} writes{rest}"
    more = f" and {len(answer.confined) - 1} more" if len(answer.confined) > 1 else ""
    return f"still confined: {answer.confined[0] if answer.confined else 'unknown'}{more}{rest}"


def _why(pod: Mapping[str, Any]) -> str:
    """Return a sentence on the state of a pod that does not answer."""
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
