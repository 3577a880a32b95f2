"""A guest that is a node: a container runtime, a CNI bridge, a kubelet, and what they need of the control plane."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.cluster.control_plane import ApiError, in_base64, kubeconfig
from tests.lab import builds, crio, images
from tests.lab.guest import Guest
from tests.lab.needs import LabError
from tests.lab.places import RUN
from tests.lab.plane import SERVICE, Plane
from tests.lab.shapes import MACHINES
from tests.patience import until
from tests.peers import kubelets

KIND = "numalign.lab/kind"
"""Label of a Node: who pins there."""
READY = 300.0
RESERVED: dict[str, Any] = {
    "reservedSystemCPUs": "0,1", "kubeReserved": {"memory": "100Mi"}, "evictionHard": {"memory.available": "50Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "150Mi"}}],
}  # fmt: skip
"""What the system keeps: the same words for the kubelet with managers and for numalign."""
QUICK_RESTARTS = 35
"""The first minor whose gate KubeletCrashLoopBackOffMax is on."""
STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
    **RESERVED,
}  # fmt: skip
PREPARE = """hostname {name}
modprobe -a overlay br_netfilter
sysctl -qw net.ipv4.ip_forward=1
# What kube-proxy would do for the one Service that the agent needs.
for chain in PREROUTING OUTPUT; do
    rule="$chain -d {service} -p tcp --dport 443 -j DNAT --to-destination {address}"
    iptables -t nat -C $rule 2>/dev/null || iptables -t nat -A $rule
done
"""
"""Runs in the guest before the runtime starts."""
SOCKETS = {"containerd": "/run/containerd/containerd.sock", "crio": crio.SOCKET}
NEWER, NEWER_PLACE = "newer", "/usr/local/bin/runc-newer"
"""A runtime class of containerd for a runc beside Debian's, and where a test puts that program (`builds.runc`)."""
Kind = Literal["numalign", "kubelet", "none"]


@dataclass(frozen=True)
class Plan:
    """What a node is to be, kept in run/lab/NAME/plan.json.

    Attributes:
        kind: who pins: numalign (the kubelet at its defaults), the kubelet's own managers, or nobody.
        machine: a name of shapes.MACHINES.
        number: of its network; no two nodes share one.
        cgroups: version, 1 or 2.
        driver: of cgroups: systemd or cgroupfs.
        nri: whether the runtime speaks NRI (its default).
        kubelet: further KubeletConfiguration.
        config: numalign's own settings besides STATIC.
        minor: of the kubelet; the control plane's is the lab's own, or the newest one (`cluster.components`).
        linux: version of the guest's kernel, a key of `builds.LINUX`.
        runtime: crio, or a key of `builds.CONTAINERDS`.
    """

    kind: Kind = "numalign"
    machine: str = "standard"
    number: int = 2
    cgroups: int = 2
    driver: str = "systemd"
    nri: bool = True
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    minor: int = kubelets.OWN
    linux: str = builds.OWN_LINUX
    runtime: str = builds.OWN_RUNTIME


class Node:
    """A node of the lab; `run` executes commands in its guest."""

    def __init__(self, name: str, plan: Plan, guest: Guest, plane: Plane) -> None:
        self.name, self.plan, self.guest, self.plane = name, plan, guest, plane
        self.run, self.put, self.get = guest.run, guest.put, guest.get

    @classmethod
    def create(cls, name: str, plan: Plan, plane: Plane) -> Node:
        """A node that is off."""
        guest = Guest.create(
            name, plan.number, MACHINES[plan.machine], cgroups=plan.cgroups, linux=plan.linux, runtime=plan.runtime
        )
        (RUN / name / "plan.json").write_text(json.dumps(asdict(plan)))
        return cls(name, plan, guest, plane)

    @classmethod
    def find(cls, name: str, plane: Plane) -> Node | None:
        """The node of that name, if it was created."""
        guest = Guest.find(name)
        try:
            plan = Plan(**json.loads((RUN / name / "plan.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return cls(name, plan, guest, plane) if guest else None

    @property
    def images(self) -> str:
        """Name of the disk of images that it was started with."""
        file = RUN / self.name / "images"
        return file.read_text() if file.exists() else ""

    # ---- starting

    def start(self, disk: Path, progress: Callable[[str], None] = lambda _text: None) -> None:
        """Boot with a disk of images, configure, join."""
        self.guest.boot(disk, progress)
        (RUN / self.name / "images").write_text(disk.name)
        progress(f"{self.name}: up")
        self._runtime()
        self._kubelet()
        self.wait_ready()

    def _runtime(self) -> None:
        for path, text in runtime_files(self.plan).items():
            self.put(path, text)
        self.put("/etc/cni/net.d/10-lab.conflist", json.dumps(network(self.plan.number)))
        address = f"{self.guest.reach.host}:{self.plane.port}"
        self.put("/etc/lab.sh", PREPARE.format(name=self.name, service=SERVICE, address=address))
        self.run(f"systemctl enable --now {builds.family(self.plan.runtime)}", seconds=300)  # reads new units, too

    def in_container(self, number: str) -> str:
        """How a command in a guest begins that runs in a container, by its id."""
        if self.plan.runtime == "crio":
            return f"runc --root {crio.RUNC} exec {number}"
        return f"ctr -n k8s.io tasks exec --exec-id x$RANDOM$RANDOM {number}"

    def load(self, archive: Path) -> None:
        """Give the runtime one more image; minutes for a large one (images of the start are on a disk)."""
        self.guest.send(archive, "/var/lib/images/image.tar")
        self.run("ctr -n k8s.io images import /var/lib/images/image.tar && rm /var/lib/images/image.tar", seconds=600)

    def _kubelet(self) -> None:
        if self.plan.minor != kubelets.OWN:  # else it is a part of the program on the disk
            self.guest.send(kubelets.program(self.plan.minor), "/var/lib/images/kubelet")
            self.run("chmod 755 /var/lib/images/kubelet && ln -sf /var/lib/images/kubelet /usr/local/bin/kubelet")
        authority, reach = self.plane.authority, self.guest.reach
        user = f"system:node:{self.name}"
        cert, key = authority.sign(self.name, user, group="system:nodes", names=[reach.address, self.name])
        client = {"client-certificate-data": in_base64(cert), "client-key-data": in_base64(key)}
        self.put("/etc/kubernetes/pki/ca.crt", authority.ca.read_bytes())
        self.put("/etc/kubernetes/pki/kubelet.crt", cert.read_bytes())
        self.put("/etc/kubernetes/pki/kubelet.key", key.read_bytes(), "600")
        server = f"https://{reach.host}:{self.plane.port}"
        self.put("/etc/kubernetes/kubeconfig", kubeconfig(server, authority.ca, client), "600")
        self.configure_kubelet(self.plan.kubelet, restart=False)
        flags = f"--node-ip={reach.address} --hostname-override={self.name} --node-labels={KIND}={self.plan.kind}"
        self.put("/etc/kubernetes/kubelet.env", f'FLAGS="{flags}"\n')
        self.run("systemctl enable --now kubelet", seconds=300)

    def configure_kubelet(self, more: Mapping[str, Any], *, restart: bool = True) -> None:
        """Write the kubelet's configuration: the lab's own, what the node's kind adds, and `more`."""
        self.put("/etc/kubernetes/kubelet.yaml", yaml.safe_dump({**kubelet_config(self.plan), **more}))
        if restart:
            self.restart("kubelet")

    def wait_ready(self, seconds: float = READY) -> None:
        deadline = time.monotonic() + seconds
        state = "is not registered"
        while time.monotonic() < deadline:
            try:
                status = self.plane.call("GET", f"/api/v1/nodes/{self.name}")["status"]
            except (ApiError, OSError) as error:
                state = str(error)
            else:
                (ready,) = [each for each in status.get("conditions", []) if each["type"] == "Ready"] or [{}]
                if ready.get("status") == "True":
                    return
                state = ready.get("message", "has no condition Ready")
            time.sleep(0.5)
        log = self.run("journalctl -u kubelet -n 15 --no-pager -o cat")
        raise LabError(f"{self.name} is not Ready after {seconds:.0f} s: {state}; its kubelet says\n{log}")

    def wait_serving(self, seconds: float = READY) -> None:
        """Wait until the kubelet that was just started admits pods: its state file is written, it answers."""
        serves = "ss -Hltn sport = :10250 | grep -q . && test -s /var/lib/kubelet/cpu_manager_state"
        until(
            lambda: not self.guest.execute(serves)[0],
            lambda: f"the kubelet of {self.name} to serve; it says\n{self.journal('kubelet', 15)}",
            within=seconds, pause=0.5, fault=LabError,
        )  # fmt: skip
        self.wait_ready()

    # ---- faults and repairs

    def restart(self, unit: str) -> None:
        """Restart a unit of the guest: kubelet, containerd."""
        self.run(f"systemctl reset-failed {unit} 2>/dev/null; systemctl restart {unit}", seconds=300)

    def journal(self, unit: str, lines: int = 200) -> str:
        return self.run(f"journalctl -u {unit} -n {lines} --no-pager -o short-iso")

    def cordon(self, *, on: bool = True) -> None:
        """The scheduler sends no pods here; off: it may again."""
        spec = {"spec": {"unschedulable": on or None}}
        self.plane.call("PATCH", f"/api/v1/nodes/{self.name}", spec, kind="application/merge-patch+json")

    def stop(self) -> None:
        self.guest.off()


def runtime_files(plan: Plan) -> Mapping[str, str]:
    """Path -> text of what the runtime of a guest needs."""
    if plan.runtime == "crio":
        return crio.files(plan.driver, nri=plan.nri)
    return {"/etc/containerd/config.toml": containerd_config(plan)}


def containerd_config(plan: Plan) -> str:
    """config.toml (https://github.com/containerd/containerd/blob/main/docs/cri/config.md)."""
    # An emulated machine on a busy host: NRI's own limits (2 s and 5 s) would drop any plugin now and then.
    nri = (
        '  plugin_request_timeout = "10s"\n  plugin_registration_timeout = "30s"\n'
        if plan.nri
        else "  disable = true\n"
    )
    systemd = "true" if plan.driver == "systemd" else "false"
    # Statistics nobody here reads, of every container each second: they took most of an emulated node's time.
    return f"""version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PLAY}"
[plugins."io.containerd.cri.v1.runtime"]
  stats_collect_period = "10m"
  stats_retention_period = "20m"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = {systemd}
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{NEWER}]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{NEWER}.options]
    BinaryName = "{NEWER_PLACE}"
    SystemdCgroup = {systemd}
[plugins."io.containerd.nri.v1.nri"]
{nri}"""


def network(number: int) -> dict[str, Any]:
    """A CNI bridge; its pods reach the control plane through the guest's own address."""
    return {
        "cniVersion": "1.0.0", "name": "lab",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
                "ipam": {
                    "type": "host-local", "ranges": [[{"subnet": f"10.22.{number}.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    }  # fmt: skip


def kubelet_config(plan: Plan) -> dict[str, Any]:
    """KubeletConfiguration: what this cluster needs, and the managers where the kubelet is to have its own."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False}, "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt", "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{SOCKETS[builds.family(plan.runtime)]}", "cgroupDriver": plan.driver,
        "staticPodPath": "/etc/kubernetes/manifests", "clusterDNS": [], "resolvConf": "/etc/resolv.conf",
        # An agent that is killed again and again starts again within seconds. An older kubelet ends with this word.
        **({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}} if plan.minor >= QUICK_RESTARTS else {}),
        **({"failCgroupV1": False} if plan.cgroups == 1 else {}),
        **(STATIC if plan.kind == "kubelet" else {}),
    }  # fmt: skip
