"""numalign in the lab: its image from the Dockerfile, installed with Helm from charts/numalign."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import yaml

from agent import __version__
from agent.host.checkpoint import Checkpoint
from agent.model.ledger import Ledger
from tests import scraped
from tests.lab.guest import CommandError
from tests.lab.needs import PromiseError
from tests.lab.node import KIND, STATIC, Node
from tests.lab.places import ROOT, RUN
from tests.lab.plane import Plane
from tests.patience import until
from tools.chart import rendering

RELEASE, NAMESPACE = "numalign", "numalign-system"
STATE = "/var/lib/numalign/checkpoint.json"
LOGS = f"/var/log/pods/{NAMESPACE}_*/*/*.log"
PORT = 9177
CONFIG: dict[str, Any] = {**STATIC, "compatibility": "kubelet", "onMisalignment": "fail", "enforcement": "auto"}
"""The kubelet's words as the other node has them, and ours: refuse what cannot be aligned, as the kubelet does."""
PUBLISHED = {"fleet": {"publish": True}}
"""The node publishes its summary."""
READY = 300.0


def values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's values. The agent's pod asks for no CPU: what is left after a node's last pod is numalign's to say.

    With its 20m the kubelet, which reserves nothing here, refuses such a pod as OutOfcpu. The pod may then be gone
    from the agent's books before its refusal is told.
    """
    return {
        "image": {"pullPolicy": "Never"}, "config": {**CONFIG, **config}, "nodeSelector": {KIND: "numalign"},
        "log": {"format": "text"}, "resources": {"requests": {"cpu": "0"}},
    }  # fmt: skip


def define(plane: Plane) -> None:
    """The CRD that scheduler-plugins brings in a cluster that has it."""
    plane.ensure(*yaml.safe_load_all((ROOT / "deploy/crds/noderesourcetopologies.yaml").read_text()))


def install(plane: Plane, config: Mapping[str, Any], **more: Any) -> None:  # noqa: ANN401 - the chart's values
    """Install or upgrade the chart."""
    file = RUN / "values.yaml"
    file.write_text(json.dumps({**values(config), **more}))  # quotes all text: Helm reads 0108 as a number
    helm(plane, "upgrade", "--install", RELEASE, str(rendering.CHART), "--create-namespace", "--values", str(file))


def configure(node: Node, words: Mapping[str, Any], seconds: float = READY) -> None:
    """Change the settings at run time, and wait until the agent of a node has them."""
    defaults = yaml.safe_load((rendering.CHART / "values.yaml").read_text())["config"]
    asked = {**defaults, **CONFIG, **node.plan.config, **words}
    pod = pod_of(node)
    if pod is None:
        raise PromiseError(f"no agent is on {node.name}")
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    file = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/config/config.yaml"
    changes, before = yaml.safe_load(node.get(file)) != asked, setups(node)
    install(node.plane, {**node.plan.config, **words})
    # The kubelet looks at a pod's volumes once a minute, and when the pod changes.
    patch = {"metadata": {"annotations": {"lab/configured": str(time.time())}}}
    where = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    node.plane.call("PATCH", where, patch, kind="application/merge-patch+json")
    until(
        lambda: yaml.safe_load(node.get(file)) == asked,
        lambda: f"the new file of the agent of {node.name}; it has\n{node.get(file).decode()}",
        within=seconds, pause=0.5, fault=PromiseError,
    )  # fmt: skip
    if changes:
        what = f"the agent of {node.name} to follow its file"
        until(lambda: setups(node) > before, what, within=seconds, pause=0.5, fault=PromiseError)


def setups(node: Node) -> int:
    """How often the agents on a node have said that they took other settings."""
    return int(node.run(f"cat {LOGS} 2>/dev/null | grep -c 'end setup' || true").strip() or 0)


def helm(plane: Plane, *arguments: str) -> None:
    """Run Helm against the lab. A chart that it does not take is a broken promise."""
    try:
        rendering.helm("--kubeconfig", plane.kubeconfig, "--namespace", NAMESPACE, *arguments, seconds=1200)
    except rendering.HelmError as error:
        raise PromiseError(f"Helm refuses {' '.join(arguments)}: {error}") from error


def pod_of(node: Node) -> dict[str, Any] | None:
    """The agent's pod on a node, if there is one that is not on its way out."""
    where = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName%3D{node.name}"
    for pod in node.plane.call("GET", where)["items"]:
        if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Failed", "Succeeded"):
            found: dict[str, Any] = pod
            return found
    return None


def wait_ready(node: Node, seconds: float = READY) -> None:
    """Wait until the agent of a node is Ready; raises PromiseError with what it says."""

    def ready() -> bool:
        pod = pod_of(node)
        conditions = pod["status"].get("conditions", []) if pod else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    until(
        ready, lambda: f"the agent of {node.name} to be Ready for {seconds:.0f} s; it says\n{log(node)}",
        within=seconds, pause=0.5, fault=PromiseError,
    )  # fmt: skip


def log(node: Node, lines: int = 40) -> str:
    """What the agent on a node said last."""
    return node.run(f"for f in $(ls -t {LOGS} | head -2); do echo == $f; tail -n {lines} $f; done; true")


def unpinned(node: Node) -> list[str]:
    """What agents on a node said of containers that started without their sets, for whatever reason."""
    return node.run(f"grep -h 'starts without its sets' {LOGS}; true").splitlines()


def late(node: Node, pod: str) -> set[str]:
    """Containers of a pod in default that started without their sets since the answer to NRI was not ready in time.

    A machine without processors of its own can bring that about; the cgroup path mends it. An agent that had not
    decided says so in other words, and is not meant.
    """
    said = re.compile(rf"container (\S+) of pod default/{re.escape(pod)} starts without its sets: the answer took")
    return {found[1] for found in map(said.search, unpinned(node)) if found}


def metrics(node: Node) -> dict[str, float]:
    """The lines of the agent's /metrics, asked for on its node."""
    pod = pod_of(node)
    where = f"/dev/tcp/{pod['status']['podIP'] if pod else ''}/{PORT}"
    text = node.run(f"exec 3<>{where}; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
    return scraped.values(text.partition("\r\n\r\n")[2])


def ledger(node: Node) -> Ledger | None:
    """The ledger as saved on the node; None before the first save."""
    try:
        data = node.get(STATE)
    except CommandError:
        return None
    copy = RUN / node.name / "checkpoint.json"
    copy.write_bytes(data)
    saved = Checkpoint(copy, by=__version__).load()
    return saved.ledger if saved else None


def kill(node: Node) -> None:
    """SIGKILL to the agent's process; the kubelet starts it again."""
    node.run("pkill -KILL -f '^/opt/numalign/bin/python[^ ]* /opt/numalign/bin/numalign run'")


def restart(node: Node) -> None:
    """Delete the agent's pod; the DaemonSet makes a new one."""
    pod = pod_of(node)
    if pod:
        node.plane.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")
