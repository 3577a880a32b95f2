"""CRI-O as a guest's runtime: its configuration and unit, and a store of images as it keeps them.

Its programs are built by `builds`. It runs containers by Debian's runc, watches them by Debian's conmon, and keeps
its images where containerd has its own: on the second disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.lab import images
from tests.lab.builds import run

SOCKET = "/run/crio/crio.sock"
RUNC = "/run/runc"
"""Where runc keeps the state of CRI-O's containers."""
STORE = "/var/lib/containerd/storage"
"""Of images, in a guest."""
UNIT = """[Unit]
Description=CRI-O
After=dbus.service lab.service
RequiresMountsFor=/var/lib/containerd

[Service]
Type=notify
ExecStartPre=/bin/sh /etc/lab.sh
ExecStart=/usr/local/bin/crio
Restart=always
RestartSec=1
Delegate=yes
KillMode=process
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-999
TimeoutStartSec=300

[Install]
WantedBy=multi-user.target
"""
REGISTRIES = 'unqualified-search-registries = ["docker.io"]\n'
"""A short name is Docker Hub's, as it is for containerd; nothing is asked there."""
POLICY: Any = {"default": [{"type": "insecureAcceptAnything"}]}


def files(driver: str, *, nri: bool) -> Mapping[str, str]:
    """Path -> text of what a guest needs."""
    return {
        "/etc/crio/crio.conf": config(driver, nri=nri), "/etc/containers/registries.conf": REGISTRIES,
        "/etc/containers/policy.json": json.dumps(POLICY), "/etc/systemd/system/crio.service": UNIT,
    }  # fmt: skip


def config(driver: str, *, nri: bool) -> str:
    """crio.conf (https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md)."""
    # With cgroupfs the monitor of a container can be nowhere but in its pod.
    monitor = "system.slice" if driver == "systemd" else "pod"
    # An emulated machine on a busy host: NRI's own limits would drop any plugin now and then.
    return f"""[crio]
root = "{STORE}"
runroot = "/run/containers/storage"
storage_driver = "overlay"
internal_wipe = false
clean_shutdown_file = ""
[crio.api]
listen = "{SOCKET}"
[crio.runtime]
cgroup_manager = "{driver}"
default_runtime = "runc"
pinns_path = "/usr/local/bin/pinns"
selinux = false
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
runtime_type = "oci"
runtime_root = "{RUNC}"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "{monitor}"
[crio.image]
pause_image = "{images.PLAY}"
pause_command = ""
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/usr/lib/cni"]
[crio.nri]
enable_nri = {"true" if nri else "false"}
nri_plugin_request_timeout = "10s"
nri_plugin_registration_timeout = "30s"
"""


def fill(folder: Path, archives: Iterable[Path], state: Path) -> None:
    """Put images (docker-archives) into a folder that a guest has at /var/lib/containerd."""
    store = ("--root", folder / Path(STORE).name, "--runroot", state, "--storage-driver", "overlay")
    for archive in archives:
        run("build", "buildah", *store, "pull", f"docker-archive:{archive}")
