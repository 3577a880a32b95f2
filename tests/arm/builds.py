"""What the guest is made of, named by content and kept in ~/.cache/numalign/lab.

root()       Debian's files for arm64 with a kernel, unpacked and not configured: nothing of them runs on this machine
programs()   containerd, its shim and ctr, built by Go for arm64, and the peer that asks it for a pod
disk()       these, the agent of the image for arm64, and the folder `guest`, as an ext4 file
kernel()     what boots it
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from functools import partial
from pathlib import Path

from tests import peers
from tests.lab import images
from tests.lab.builds import LEFT_OUT, LINUX, OWN_LINUX, TOOLS, folder_disk, making, run
from tests.lab.needs import program
from tests.lab.places import CACHE, digest
from tests.programs import need
from tools import image

ARCH = "arm64"
qemu = partial(need, "qemu-system-aarch64")
PACKAGES = (
    "linux-image-cloud-arm64", "runc", "busybox-static", "python3", "libudev1", "libstdc++6", "util-linux",
    "ca-certificates",
)  # fmt: skip
"""What the image's base has, a runtime, and lscpu. The kernel has NVMe and ext4 built in."""
GUEST = Path(__file__).parent / "guest"
SIZE = "2G"
"""Of the disk; the file is sparse."""


def root() -> Path:
    """Debian's files, a tar."""
    target = CACHE / f"root-{ARCH}-{digest(LINUX[OWN_LINUX], *PACKAGES)}.tar"
    with making(target) as part:
        if part:
            options = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in LEFT_OUT]
            made = part.with_suffix(".tar")  # mmdebstrap takes the format from the name
            told = ("--variant=extract", f"--architectures={ARCH}", f"--include={','.join(PACKAGES)}", *options)
            run("build", program("mmdebstrap"), *told, LINUX[OWN_LINUX], made)
            made.rename(part)
    return target


def kernel() -> Path:
    """Of the same Debian."""
    target = CACHE / f"vmlinuz-{root().stem}"
    with making(target) as part:
        if part:
            with tarfile.open(root()) as files:
                (name,) = (each for each in files.getnames() if Path(each).name.startswith("vmlinuz-"))
                found = files.extractfile(name)
                part.write_bytes(found.read() if found else b"")
    return target


def programs() -> dict[str, Path]:
    """Name -> program."""
    return {**{name: tool(name) for name in TOOLS}, "cri": peers.build("cri", arch=ARCH)}


def tool(name: str) -> Path:
    """One of the lab's TOOLS. A program for another architecture is installed below GOPATH, never in GOBIN."""
    module = TOOLS[name]
    target = CACHE / "tools" / f"{name}-{ARCH}-{module.rpartition('@')[2]}"
    with making(target) as part:
        if part:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                where = {"GOBIN": "", "GOPATH": folder, "GOMODCACHE": module_cache()}
                built = {"GOARCH": ARCH, "CGO_ENABLED": "0", **where}
                run("build", "go", "install", "-trimpath", "-ldflags=-s -w", module, env=built)
                (Path(folder) / "bin" / f"linux_{ARCH}" / name).rename(part)
    return target


def module_cache() -> str:
    """Where Go keeps modules on this machine."""
    asked = ["go", "env", "GOMODCACHE"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def disk() -> Path:
    """What the guest boots; an image of other sources makes another one."""
    system, built = root(), programs()
    name = digest(system.name, image.archive().name, GUEST, SIZE, *(path.name for path in built.values()))

    def fill(top: Path) -> None:
        run("build", "tar", "--numeric-owner", "--exclude=./boot", "-C", top, "-xf", system)
        for each in ("proc", "sys", "run", "out", "root", "opt", "usr/local/bin", "usr/local/busybox"):
            (top / each).mkdir(parents=True, exist_ok=True)
        (top / "bin/sh").symlink_to("busybox")
        for own, path in built.items():
            shutil.copy2(path, top / "usr/local/bin" / own)
        _agent(top / "opt/numalign")
        shutil.copytree(GUEST, top / "guest")
        shutil.copy2(GUEST / "init.sh", top / "init")
        (top / "init").chmod(0o755)
        (top / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (top / "etc/resolv.conf").write_text("")
        (top / "guest/play.tar").write_bytes(images.play_of((top / "bin/busybox").read_bytes(), ARCH))

    return folder_disk(f"disk-{ARCH}-{name}", SIZE, fill)


def _agent(place: Path) -> None:
    """The agent as the image for arm64 has it."""
    tag = f"numalign-{ARCH}:guest"
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        file, files = Path(folder) / "image.tar", Path(folder) / "files"
        with image.locked():
            store = image.kept_store()
            image.build(store, tag, ARCH)
            store("push", tag, f"docker-archive:{file}:{tag}")
        files.mkdir()
        image.unpack(file, files)
        (files / "opt/numalign").rename(place)
