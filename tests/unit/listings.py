"""Trees of cgroups as kubelets and runtimes make them, path by path, and what each path is."""

from __future__ import annotations

from pathlib import Path

from agent.host.scratch.kernel import CpusetKernel
from agent.host.scratch.store import TreeFolder
from agent.model.cgroup import Level
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos

UID = "1b2c3d4e-0000-4000-8000-00000000000a"
STATIC = "0123456789abcdef0123456789abcdef"  # the kubelet's hash of a manifest
ID, BOX, MONITOR = "a1" * 32, "b2" * 32, "c3" * 32
G, B, E = Qos.GUARANTEED, Qos.BURSTABLE, Qos.BEST_EFFORT
K, Q, P, C, I = Level.KUBEPODS, Level.QOS, Level.POD, Level.CONTAINER, Level.INNER  # noqa: E741 - because of the listings below
Row = tuple[str, Level, Qos, str, str]
ESCAPED = UID.replace("-", "_")
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
_EFFORT = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"
_CUSTOM = "/a_b.slice/a_b-kubepods.slice"
_KIND = "/kubelet.slice/kubelet-kubepods.slice"
LISTINGS: dict[str, tuple[int, list[Row]]] = {
    "containerd, systemd, v2": (2, [
        ("/kubepods.slice", K, G, "", ""),
        ("/kubepods.slice/kubepods-besteffort.slice", Q, E, "", ""),
        (f"{_EFFORT}{ESCAPED}.slice", P, E, UID, ""),
        (f"{_EFFORT}{ESCAPED}.slice/cri-containerd-{ID}.scope", C, E, UID, ID),
        ("/kubepods.slice/kubepods-burstable.slice", Q, B, "", ""),
        (f"{BURSTABLE}{STATIC}.slice", P, B, STATIC, ""),
        (f"{BURSTABLE}{STATIC}.slice/cri-containerd-{ID}.scope", C, B, STATIC, ID),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice", P, G, UID, ""),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/cri-containerd-{BOX}.scope", C, G, UID, BOX),
    ]),
    "containerd, cgroupfs, v1": (1, [
        ("/kubepods", K, G, "", ""),
        ("/kubepods/besteffort", Q, E, "", ""),
        ("/kubepods/burstable", Q, B, "", ""),
        (f"/kubepods/burstable/pod{UID}", P, B, UID, ""),
        (f"/kubepods/burstable/pod{UID}/{ID}", C, B, UID, ID),
        (f"/kubepods/pod{STATIC}", P, G, STATIC, ""),
        (f"/kubepods/pod{STATIC}/{BOX}", C, G, STATIC, BOX),
        (f"/kubepods/pod{STATIC}/{BOX}/init.scope", I, G, STATIC, BOX),  # systemd in a container
        (f"/kubepods/pod{STATIC}/{BOX}/init.scope/deep", I, G, STATIC, BOX),
    ]),
    "CRI-O with crun, systemd, v2": (2, [
        ("/kubepods.slice", K, G, "", ""),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice", P, G, UID, ""),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/crio-{ID}.scope", C, G, UID, ID),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/crio-{ID}.scope/container", I, G, UID, ID),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/crio-conmon-{MONITOR}.scope", C, G, UID, f"conmon-{MONITOR}"),
    ]),
    "CRI-O, cgroupfs, v1": (1, [
        ("/kubepods", K, G, "", ""),
        (f"/kubepods/pod{UID}", P, G, UID, ""),
        (f"/kubepods/pod{UID}/crio-{ID}", C, G, UID, ID),
        (f"/kubepods/pod{UID}/crio-{ID}/container", I, G, UID, ID),
        (f"/kubepods/pod{UID}/crio-conmon-{ID}", C, G, UID, f"conmon-{ID}"),
    ]),
    "cri-dockerd, systemd, v2": (2, [
        ("/kubepods.slice", K, G, "", ""),
        ("/kubepods.slice/kubepods-burstable.slice", Q, B, "", ""),
        (f"{BURSTABLE}{ESCAPED}.slice", P, B, UID, ""),
        (f"{BURSTABLE}{ESCAPED}.slice/docker-{ID}.scope", C, B, UID, ID),
    ]),
    "cri-dockerd, cgroupfs, v1": (1, [
        ("/kubepods", K, G, "", ""),
        (f"/kubepods/pod{UID}", P, G, UID, ""),
        (f"/kubepods/pod{UID}/{ID}", C, G, UID, ID),
    ]),
    "containerd with Kata Containers, cgroupfs, v2": (2, [
        ("/kubepods", K, G, "", ""),
        (f"/kubepods/pod{UID}", P, G, UID, ""),
        (f"/kubepods/pod{UID}/kata_{BOX}", C, G, UID, BOX),
    ]),
    "custom cgroup root /a-b, systemd, v2": (2, [
        ("/a_b.slice/a_b-kubepods.slice", K, G, "", ""),
        ("/a_b.slice/a_b-kubepods.slice/a_b-kubepods-burstable.slice", Q, B, "", ""),
        (f"{_CUSTOM}/a_b-kubepods-burstable.slice/a_b-kubepods-burstable-pod{ESCAPED}.slice", P, B, UID, ""),
        (f"{_CUSTOM}/a_b-kubepods-pod{STATIC}.slice", P, G, STATIC, ""),
    ]),
    "kind, systemd, v2": (2, [
        ("/kubelet.slice/kubelet-kubepods.slice", K, G, "", ""),
        ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice", Q, E, "", ""),
        (f"{_KIND}/kubelet-kubepods-pod{ESCAPED}.slice", P, G, UID, ""),
        (f"{_KIND}/kubelet-kubepods-pod{ESCAPED}.slice/cri-containerd-{ID}.scope", C, G, UID, ID),
    ]),
    "kind seen from its host, cgroupfs, v1": (1, [
        (f"/docker/{MONITOR}/kubelet/kubepods", K, G, "", ""),
        (f"/docker/{MONITOR}/kubelet/kubepods/pod{UID}", P, G, UID, ""),
        (f"/docker/{MONITOR}/kubelet/kubepods/pod{UID}/{ID}", C, G, UID, ID),
    ]),
    "other folders, v2": (2, [
        ("/kubepods.slice", K, G, "", ""),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice", P, G, UID, ""),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/helper", C, G, UID, "helper"),
        (f"/kubepods.slice/kubepods-pod{ESCAPED}.slice/libpod-{ID}.scope", C, G, UID, ID),
    ]),
}  # fmt: skip
NOISE = ["/system.slice", "/system.slice/kubelet.service", "/init.scope", "/user.slice/user-0.slice"]


def build(folder: Path, version: int, paths: list[str]) -> None:
    """Plain folders with the files that a kernel makes."""
    folder.mkdir()
    for name in ("cpuset", "cpu", "memory") if version == 1 else ():
        (folder / name).mkdir()
    kernel = CpusetKernel(version, TreeFolder(folder, version), CpuSet.of(0, 1, 2, 3), NodeSet.of(0))
    kernel.store.put("", "cgroup.procs", "")
    if version == 2:
        kernel.store.put("", "cgroup.controllers", "cpuset cpu io memory pids")
    kernel.online(kernel.possible_cpus, kernel.possible_nodes)
    for path in paths:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            here = "/" + "/".join(parts[:depth])
            if not kernel.store.has(here, "cgroup.procs"):
                kernel.mkdir(here)
