"""Nodes of the lab (tests/lab) set up for one sequence after the other.

numalign beside a kubelet at its defaults, and the shadow, whose kubelet has static policies of its own: settings are
changed as an administrator of each would do it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests import patience, peers
from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.needs import LabError, PromiseError
from tests.lab.node import STATIC, Node, kubelet_config
from tests.referee.sequence import Sequence
from tests.referee.shapes import config_of

PATIENCE, DECIDED, CONFIGURED = 0.2, 360.0, 240.0
"""Seconds between two looks; until a pod is decided; until other settings are in force."""
OURS: Mapping[str, Any] = {
    "compatibility": "kubelet", "onMisalignment": "fail", "refusals": {"perOwnerPerHour": 1000},
}  # fmt: skip
PAGES = 16
"""Huge pages of 2 MiB per node (shapes.MACHINES)."""


def wait(
    what: str, until: Callable[[], object], seconds: float, fault: type[PromiseError | LabError] = PromiseError
) -> None:
    """Wait until something is true. Raises `fault`: what numalign has nothing to do with is the lab's own."""
    patience.until(until, f"{what}, for {seconds:.0f} s", within=seconds, pause=PATIENCE, fault=fault)


@dataclass
class Ground:
    """One node, set up for one sequence after the other; settings that stay are not set again."""

    lab: Lab
    node: Node
    machine: str = "lab"
    """That it is, of `tests.referee.shapes.MACHINES`."""
    config: dict[str, Any] | None = None
    kubelet: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, Any] = field(default_factory=dict)
    count: int = field(default_factory=lambda: int(time.time()))
    """Of sequences; part of the names of their pods, which a lab that is used again has not seen."""
    late: set[str] = field(default_factory=set)
    """Init containers that started before the agent's answer was ready."""
    settings: int = 0
    """How often its settings were changed."""

    @property
    def pins(self) -> bool:
        """Whether the kubelet of this node pins by itself."""
        return self.node.plan.kind == "kubelet"

    def ready(self, sequence: Sequence) -> None:
        """Make it an empty node with a sequence's settings and devices."""
        if sequence.machine != self.machine:
            raise LabError(f"{sequence.name} wants a machine {sequence.machine}, and {self.node.name} is not one")
        self.lab.clear(self.node)
        self.count += 1
        managers, plain = config_of(sequence.config), dict(sequence.kubelet)
        if self.pins:
            self._shadow(managers, plain)
        else:
            self._kubelet(plain)
            self._agent({**managers, **OURS})
        self._devices({resource: dict(by) for resource, by in sequence.devices.items()})

    def huge_pages(self) -> None:
        """Make the huge pages that sequences count on; kubelet and agent read them when they start."""
        files = "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
        told = self.node.run(f"for f in {files}; do echo {PAGES} >$f; done; cat {files}").split()
        if set(told) != {str(PAGES)}:
            raise LabError(f"{self.node.name} has no room for {PAGES} huge pages per node: {told}")

    def _shadow(self, managers: dict[str, Any], plain: dict[str, Any]) -> None:
        """Other policies want the kubelet's state files gone and the kubelet restarted."""
        wanted = {**managers, **plain, "cpuManagerReconcilePeriod": "1s"}
        gates = {**managers.get("featureGates", {}), **plain.get("featureGates", {})}
        wanted |= {"featureGates": gates} if gates else {}
        if wanted == self.config:
            return
        base = {key: value for key, value in kubelet_config(self.node.plan).items() if key not in STATIC}
        self.node.run("systemctl stop kubelet; rm -f /var/lib/kubelet/*_manager_state", seconds=CONFIGURED)
        self._start_kubelet({**base, **wanted})
        self.config = wanted

    def _kubelet(self, plain: dict[str, Any]) -> None:
        """The kubelet beside numalign: at its defaults but for what no manager reads."""
        if plain != self.kubelet:
            self.node.run("systemctl stop kubelet", seconds=CONFIGURED)
            self._start_kubelet({**kubelet_config(self.node.plan), **plain})
            self.kubelet = plain

    def _start_kubelet(self, config: dict[str, Any]) -> None:
        self.node.put("/etc/kubernetes/kubelet.yaml", yaml.safe_dump(config))
        self.node.run("systemctl reset-failed kubelet 2>/dev/null; systemctl start kubelet", seconds=CONFIGURED)
        self.wait_kubelet()
        self.settings += 1
        self.devices = {}  # it knows how many it had, and gives none until their plugin has come back

    def wait_kubelet(self) -> None:
        asked = r"exec 3<>/dev/tcp/127.0.0.1/10248 && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && tail -n1 <&3"
        wait(
            f"the kubelet of {self.node.name} is healthy",
            lambda: self.node.guest.execute(asked)[1] == b"ok",
            CONFIGURED,
            LabError,
        )

    def follow(self, more: Mapping[str, Any]) -> None:
        """Change some of numalign's own settings until the next sequence."""
        self._agent({**(self.config or {}), **more})

    def _agent(self, config: dict[str, Any]) -> None:
        """The ConfigMap changes while the agent runs; it is followed without a restart.

        A kubelet brings a changed ConfigMap to its pods within a minute or two, and at once to a pod that is changed
        itself (https://kubernetes.io/docs/tutorials/configuration/updating-configuration-via-a-configmap/).
        """
        if config == self.config:
            return
        pod, before = self._agent_pod(), agent.setups(self.node)
        merge = "application/merge-patch+json"
        where = f"/api/v1/namespaces/{agent.NAMESPACE}"
        self.lab.plane.call(
            "PATCH",
            f"{where}/configmaps/{agent.RELEASE}",
            {"data": {"config.yaml": yaml.safe_dump(config)}},
            kind=merge,
        )
        nudge = {"metadata": {"annotations": {"lab.example.com/nudge": f"{time.time()}"}}}
        self.lab.plane.call("PATCH", f"{where}/pods/{pod['metadata']['name']}", nudge, kind=merge)
        wait("the agent follows its new settings", lambda: agent.setups(self.node) > before, CONFIGURED)
        self.config, self.settings = config, self.settings + 1

    def _agent_pod(self) -> Object:
        pod = agent.pod_of(self.node)
        if pod is None:
            raise PromiseError(f"there is no agent on {self.node.name}")
        return pod

    def _devices(self, wanted: dict[str, Any]) -> None:
        """The sample device plugin with a sequence's devices; resources of other sequences stay, unused.

        The Node may still show the counts of an earlier start, which can be the same ones. A resource that no start
        before had tells that what it shows is this one's.
        """
        if not wanted or wanted == self.devices:
            return
        marked = {**wanted, f"lab.example.com/start-{time.time():.0f}": {"mark": 0}}
        arguments = " ".join(
            f"{resource}={','.join(f'{each}:{node}' for each, node in by.items())}" for resource, by in marked.items()
        )
        plugin(self.node, arguments)
        counts = {resource: str(len(by)) for resource, by in marked.items()}

        def there() -> bool:
            found = self.lab.plane.call("GET", f"/api/v1/nodes/{self.node.name}")["status"].get("allocatable", {})
            return all(found.get(resource) == count for resource, count in counts.items())

        wait(f"{self.node.name} offers {arguments}", there, CONFIGURED, LabError)
        self.devices = wanted

    def restart(self) -> None:
        """The kubelet is restarted, the agent killed; both keep their files."""
        if self.pins:
            self.node.restart("kubelet")
            self.wait_kubelet()
            return
        before = self._restarts()
        agent.kill(self.node)
        wait("the agent was started again", lambda: self._restarts() > before, DECIDED)
        agent.wait_ready(self.node)

    def _restarts(self) -> int:
        return sum(int(each["restartCount"]) for each in self._agent_pod()["status"].get("containerStatuses", ()))


def plugin(node: Node, arguments: str) -> None:
    """Start the sample device plugin (tests/peers/devices) in a guest, in place of one that runs."""
    node.run("systemctl stop lab-devices 2>/dev/null; systemctl reset-failed lab-devices 2>/dev/null; true")
    node.guest.send(peers.build("devices"), "/run/lab-devices")
    node.run(f"chmod 755 /run/lab-devices && systemd-run --quiet --unit=lab-devices /run/lab-devices {arguments}")
