"""What a real kube-apiserver says to each kind of hostile pod: asked once, kept in answers.json.

with ControlPlane(...) as cluster: write(ask(cluster))      python -m tests.hostile
taken()                                                     the kinds that it takes, as kept
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.objects import namespace, node
from tests.hostile.objects import KINDS, SPACE, Hostile, alone, written

TABLE = Path(__file__).with_name("answers.json")
SEED = 1
NODE = "hostile"
TAKEN = "taken"
LONGEST = 160
"""Characters of a server's sentence that are kept."""


def ask(cluster: ControlPlane, kinds: Iterable[str] = KINDS) -> dict[str, str]:
    """Have a pod of each kind created, and removed: kind -> "taken", or the server's own sentence."""
    cluster.ensure(node(NODE), namespace(SPACE))
    wanted = set(kinds)
    return {pod.kinds[0]: _answer(cluster, pod) for pod in alone(SEED) if pod.kinds[0] in wanted}


def _answer(cluster: ControlPlane, pod: Hostile) -> str:
    body = {**pod.body, "metadata": {key: value for key, value in pod.body["metadata"].items() if key != "uid"}}
    body["spec"] = {**body["spec"], "nodeName": NODE}
    path = f"/api/v1/namespaces/{SPACE}/pods"
    try:
        cluster.call("POST", path, written(body), raw=True)
    except ApiError as error:
        return " ".join(str(error).split())[:LONGEST]
    if "finalizers" in body["metadata"]:
        nothing = {"metadata": {"finalizers": None}}
        cluster.call("PATCH", f"{path}/{pod.name}", nothing, kind="application/merge-patch+json", raw=True)
    cluster.call("DELETE", f"{path}/{pod.name}?gracePeriodSeconds=0", raw=True)
    return TAKEN


def table() -> dict[str, Any]:
    """As kept: "version" of the server, "answers" by kind."""
    found: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return found


def taken() -> tuple[str, ...]:
    """The kinds that a tenant can bring about."""
    return tuple(kind for kind, answer in table()["answers"].items() if answer == TAKEN)


def write(cluster: ControlPlane) -> None:
    """Ask for all, and keep the answers."""
    version = cluster.call("GET", "/version")["gitVersion"]
    text = json.dumps({"version": version, "answers": ask(cluster)}, indent=1, ensure_ascii=True, sort_keys=True)
    TABLE.write_text(text + "\n", "utf-8")
