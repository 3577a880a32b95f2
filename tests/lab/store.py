"""A disk with container images as the guests' runtime keeps them, filled by the same containerd on this machine.

For CRI-O buildah fills it, which keeps images in the same way (containers/storage).

Importing an image of 230 MB in an emulated machine takes minutes, here seconds. The machine's own containerd, if it
has one, is not touched: root, state and sockets are in a folder of their own, and nothing of the network is used.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.lab import crio
from tests.lab.builds import OWN_RUNTIME, folder_disk, run, tool
from tests.lab.needs import LabError
from tests.lab.places import digest, logs
from tests.patience import until

SIZE = "6G"
"""Of the disk; the file is sparse."""
CONFIG = """version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{state}/grpc.sock"
[ttrpc]
  address = "{state}/ttrpc.sock"
"""
PATIENCE = 60.0


def image_disk(archives: Iterable[Path], runtime: str = OWN_RUNTIME) -> Path:
    """The disk with these images (docker-archives whose names say what is in them), as a runtime keeps them."""
    files = sorted(archives)
    if runtime == "crio":

        def pull(folder: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="lab-") as state:
                crio.fill(folder, files, Path(state))

        return folder_disk(f"images-{digest(SIZE, crio.STORE, *(file.name for file in files))}", SIZE, pull)

    def fill(folder: Path) -> None:
        # A short path: a socket's may have 108 characters.
        with tempfile.TemporaryDirectory(prefix="lab-") as state:
            config = Path(state) / "config.toml"
            config.write_text(CONFIG.format(root=folder, state=state))
            with (logs() / "build.log").open("ab") as log:
                containerd = subprocess.Popen([tool("containerd"), "--config", config], stdout=log, stderr=log)
            try:
                what = f"containerd to start on this machine: see {logs()}/build.log"
                until((Path(state) / "grpc.sock").exists, what, within=PATIENCE, pause=0.1, fault=LabError)
                for file in files:
                    run("build", tool("ctr"), "-a", f"{state}/grpc.sock", "-n", "k8s.io", "images", "import", file)
            finally:
                containerd.terminate()
                containerd.wait(PATIENCE)

    name = digest(SIZE, CONFIG, tool("containerd").name, *(file.name for file in files))
    return folder_disk(f"images-{name}", SIZE, fill)
