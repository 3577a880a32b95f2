"""What an agent learns of its node at start, from the API if it answers in time: the Node, and the node's pods.

One GET, one LIST with the node's selector and one GET per namespace, all of it together within PATIENCE; without an
answer the agent starts from its ledger and its cgroups alone, and the watch brings the rest. The list may come from
the server's cache: it names what runs, and nothing is freed by it. Used by `agent.app.cluster.build`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.app.service.other_writers import writing_pods
from agent.errors import KubeError
from agent.host import allocator
from agent.kube.client import KubeClient, pod_list
from agent.kube.nodes import NodeFacts, node_facts
from agent.kube.objects.mirrors import Mirrors
from agent.kube.objects.pod_objects import SeenPod, seen
from agent.kube.pod_report import annotated_grant
from agent.model.fields import mapping_of
from agent.model.pod import Pod
from agent.node.adopt import AnnotatedGrant
from agent.node.fault_isolation import Isolated, sentence
from agent.observe.logs import LOG

PATIENCE = 10.0
"""Seconds."""
FIND_WITHIN = 0.05
"""Seconds that the runtime can wait for one GET; all of its answer has 0.2 (safety.md S9)."""


@dataclass(frozen=True, slots=True)
class Start:
    """What was learnt.

    Attributes:
        node: the Node, None when it could not be read.
        pods: the node's pods that have not ended; empty when they could not be read.
        names: container id -> (pod uid, container name).
        words: the grants of an earlier agent that the pods carry, by uid.
        listed: the pods were read.
        writers: sentences on those that write cpusets.
    """

    node: NodeFacts | None = None
    pods: tuple[Pod, ...] = ()
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    words: Mapping[str, AnnotatedGrant] = field(default_factory=dict)
    listed: bool = False
    writers: tuple[str, ...] = ()


def read_start(
    client: KubeClient, node: str, defaults: Callable[[str], Mapping[str, str]], patience: float = PATIENCE,
    mirrors: Mirrors | None = None,
) -> Start:  # fmt: skip
    """Ask; never waits longer than `patience` seconds, never raises. The pods' mirrors are noted."""
    allocator.keep_little()  # before the first large object is read
    answers: dict[str, dict[str, Any]] = {}
    spaces: dict[str, Mapping[str, str]] = {}

    def ask() -> None:
        with Isolated(lambda error: LOG.warning("starting without the API server: %s", sentence(error))):
            answers["node"] = client.get(f"/api/v1/nodes/{node}")
            query = (("fieldSelector", f"spec.nodeName={node}"), ("resourceVersion", "0"))
            answers["pods"] = client.call("GET", "/api/v1/pods", query=query, verb="LIST pods", reader=pod_list)
            for space in sorted({_space(body) for body in answers["pods"].get("items") or ()}):
                spaces[space] = _defaults(defaults, space)

    thread = threading.Thread(target=ask, name="start", daemon=True)
    try:
        thread.start()
        thread.join(patience)
    except RuntimeError as error:  # the limit of processes is reached
        LOG.warning("starting without the API server: %s", error)
    found, known = dict(answers), dict(spaces)  # what comes later is the watch's
    if thread.is_alive():
        what = "namespaces' annotations" if "pods" in found else "the API server"
        LOG.warning("starting without %s: no answer within %.0f s", what, patience)
    facts = node_facts(found["node"]) if "node" in found else None
    items = found.get("pods", {}).get("items") or ()
    writers = writing_pods([each for each in items if isinstance(each, Mapping)])
    pods = _pods(found.get("pods", {}), known, mirrors or Mirrors())
    return replace(pods, node=facts, listed="pods" in found, writers=writers)


def _pods(answer: Mapping[str, Any], spaces: Mapping[str, Mapping[str, str]], mirrors: Mirrors) -> Start:
    pods: list[Pod] = []
    names: dict[str, tuple[str, str]] = {}
    words: dict[str, AnnotatedGrant] = {}
    for body in answer.get("items") or ():
        with Isolated(lambda _error: None):  # the intake logs it
            found = seen(body, spaces.get(_space(body), {}), mirrors)
            if found.pod.uid != found.api_uid:  # the best one has the hash
                pods = [each for each in pods if each.uid != found.pod.uid]
                names = {each: spot for each, spot in names.items() if spot[0] != found.pod.uid}
                words.pop(found.pod.uid, None)
            if not found.ended:
                pods.append(found.pod)
                names |= {each: (found.pod.uid, name) for each, name in found.containers.items()}
                word = annotated_grant(body)
                if word:
                    words[found.pod.uid] = word
    return Start(pods=tuple(pods), names=names, words=words)


def _space(body: object) -> str:
    return str(mapping_of(mapping_of(body).get("metadata")).get("namespace", ""))


def _defaults(defaults: Callable[[str], Mapping[str, str]], space: str) -> Mapping[str, str]:
    try:
        return defaults(space)
    except KubeError:
        return {}


def find_pod(
    client: KubeClient, defaults: Callable[[str], Mapping[str, str]], namespace: str, name: str, uid: str,
    known: Callable[[Mapping[str, Any], SeenPod], None] = lambda _body, _found: None,
    mirrors: Mirrors | None = None,
) -> Pod | None:  # fmt: skip
    """Read one pod; None when it does not exist, has another uid, or cannot be read.

    `known` takes it as a pod that the watch brings: it is decided now, and the same event of the watch changes
    nothing more. A pod that has run for longer than a start takes is left to the watch: it is adopted.
    """
    with Isolated(lambda _error: None):
        body = client.pod(namespace, name)
        found = seen(body, _defaults(defaults, namespace), mirrors)
        if found.pod.uid == uid and not found.ended and not found.ran(time.time()):
            known(body, found)
            return found.pod
    return None
