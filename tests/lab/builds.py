"""Programs and disks of the lab, built once and kept in ~/.cache/numalign/lab, named by version or content.

tools()       containerd, its shim, ctr: `go install` by version
crio()        CRI-O and its helper, for guests that have it in place of containerd
runc()        a newer runc, for pods that ask for it beside Debian's
root()        Debian's file system for the guests, as a tar
disk()        root and programs as an ext4 file, and the kernel that boots it
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import peers
from tests.lab.needs import LabError, program
from tests.lab.places import CACHE, HERE, digest, logs
from tests.peers.tools import module

CONTAINERD = "v2.4.2"
TOOLS = {
    "containerd": f"github.com/containerd/containerd/v2/cmd/containerd@{CONTAINERD}",
    "containerd-shim-runc-v2": f"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@{CONTAINERD}",
    "ctr": f"github.com/containerd/containerd/v2/cmd/ctr@{CONTAINERD}",
}
CRIO, CRIO_MODULE = "v1.34.0", "github.com/cri-o/cri-o"
CRIO_TAGS = (
    "containers_image_ostree_stub,containers_image_openpgp,exclude_graphdriver_btrfs,btrfs_noversion,netgo,osusergo"
)
"""What leaves out the C libraries that it can do without: GPGME, Btrfs; seccomp, SELinux and AppArmor by default."""
RUNC, RUNC_MODULE = "v1.4.4", "github.com/opencontainers/runc"
"""The first minor that sets memory policies; Debian's 1.1.5 runs all other containers."""
RUNTIMES: Mapping[str, tuple[str, ...]] = {"containerd": (), "crio": ("conmon",)}
"""A guest's runtime, and what it needs of Debian besides PACKAGES."""
OWN_RUNTIME = "containerd"
CONTAINERDS: Mapping[str, str] = {OWN_RUNTIME: CONTAINERD, "containerd-2.3": "v2.3.7", "containerd-2.2": "v2.2.5"}
"""Runtimes that are containerd -> version: the lab's own, the LTS, the last of 2.2 that keeps refused sandboxes."""
LINUX = {"6.1": "bookworm", "6.12": "trixie", "7": "trixie"}
"""The guests' kernel, and the release of Debian whose guests have it."""
KERNEL = "linux-image-cloud-amd64"
"""Has NVMe and ext4 built in: no initrd is needed to boot it."""
BACKPORTED = {"7": "trixie-backports"}
"""Where a kernel comes from that is not its release's own: the newest one there; all else is the release's."""
ARCHIVE = "http://deb.debian.org/debian"
OWN_LINUX = "6.1"
"""Of the lab as it always is."""
PACKAGES = (
    "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "iptables", "procps", "runc", "containernetworking-plugins",
    "python3", "ca-certificates", KERNEL,
)  # fmt: skip
"""Of the guests."""
LEFT_OUT = ("doc", "man", "locale", "info")
SIZE = "4G"
"""Of the guests' disk; the file is sparse."""


@dataclass(frozen=True)
class Disk:
    """What a guest boots."""

    image: Path
    kernel: Path


@contextlib.contextmanager
def making(target: Path) -> Iterator[Path | None]:
    """As `tests.peers.making`; where only the cache is asked, that it is not there is said."""
    with peers.making(target) as part:
        if part:
            peers.from_cache(target.name)
        yield part


def run(log: str, *command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a program whose words go to a log; raises LabError with the end of it."""
    path = logs() / f"{log}.log"
    with path.open("ab") as file:
        started = file.tell()
        done = subprocess.run(
            [str(part) for part in command], stdout=file, stderr=file, check=False, cwd=cwd,
            env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    if done.returncode:
        said = path.read_bytes()[started:][-1500:].decode(errors="replace")
        raise LabError(f"{command[0]} failed with {done.returncode} ({path}):\n{said}")


def tools() -> dict[str, Path]:
    """Path of each of TOOLS."""
    return {name: tool(name) for name in TOOLS}


def family(runtime: str) -> str:
    """A key of RUNTIMES, which is also the name of the runtime's unit."""
    return OWN_RUNTIME if runtime in CONTAINERDS else runtime


def tool(name: str, version: str = "") -> Path:
    """One of TOOLS, built when it is not kept; of another version than the lab's own where one is given."""
    module = TOOLS[name]
    module = f"{module.rpartition('@')[0]}@{version}" if version else module
    target = CACHE / "tools" / f"{name}-{module.rpartition('@')[2]}"
    with making(target) as part:
        if part:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                built = {"GOBIN": folder, "CGO_ENABLED": "0"}
                run("build", "go", "install", "-trimpath", "-ldflags=-s -w", module, env=built)
                (Path(folder) / name).rename(part)
    return target


def crio() -> dict[str, Path]:
    """CRI-O, which is C in part, and pinns, which is C; linked statically, since guests have other releases' libc."""
    places = crio_places()
    if not shutil.which("cc"):
        raise LabError("CRI-O is C in part, and there is no compiler: apt-get install gcc libc6-dev")
    source = module(CRIO_MODULE, CRIO)
    with making(places["crio"]) as part:
        if part:
            # In its own folder, with the sums of its own release: the module proxy does not know all of them.
            flags = "-ldflags=-s -w -linkmode external -extldflags -static"
            options = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-tags", CRIO_TAGS, flags, "-o", part)
            run("build", "go", "build", *options, "./cmd/crio", env={"CGO_ENABLED": "1"}, cwd=source)
    with making(places["pinns"]) as part:
        if part:
            sources = sorted((source / "pinns" / "src").glob("*.c"))
            run("build", "cc", "-std=c99", "-Os", "-static", "-s", "-o", part, *sources)
    return places


def runc() -> Path:
    """A newer runc than the guests' own, linked statically: for pods that ask for it.

    It has seccomp, since the kubelet asks for a profile for each sandbox.
    """
    target = CACHE / "tools" / f"runc-{RUNC}-seccomp"
    with making(target) as part:
        if part:
            programs = shutil.which("cc") and shutil.which("pkg-config")
            if not programs or subprocess.run(["pkg-config", "libseccomp"], check=False).returncode:
                raise LabError("runc is C in part: apt-get install gcc libc6-dev pkg-config libseccomp-dev")
            flags = "-ldflags=-s -w -linkmode external -extldflags -static"
            options = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-tags", "netgo,osusergo,seccomp", flags)
            module_ = module(RUNC_MODULE, RUNC)
            run("build", "go", "build", *options, "-o", part, ".", env={"CGO_ENABLED": "1"}, cwd=module_)
    return target


def crio_places() -> dict[str, Path]:
    """Where CRI-O and pinns are kept once they are built."""
    return {name: CACHE / "tools" / f"{name}-{CRIO}" for name in ("crio", "pinns")}


def root_place(linux: str, runtime: str) -> Path:
    """Where the guests' file system is kept once it is made."""
    return CACHE / f"root-{digest(LINUX[linux], *_packages(linux, runtime))}.tar"


def _packages(linux: str, runtime: str) -> tuple[str, ...]:
    """Of a guest's file system, as apt takes them: with a slash, of another suite than the release's own."""
    later = {KERNEL: f"{KERNEL}/{BACKPORTED[linux]}"} if linux in BACKPORTED else {}
    return tuple(later.get(each, each) for each in (*PACKAGES, *RUNTIMES[family(runtime)]))


def root(linux: str = OWN_LINUX, runtime: str = OWN_RUNTIME) -> Path:
    """The guests' file system as Debian makes it, a tar; of the release that has this kernel."""
    suite = LINUX[linux]
    suites = (suite, BACKPORTED[linux]) if linux in BACKPORTED else ()
    target = root_place(linux, runtime)
    with making(target) as part:
        if part:
            options = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in LEFT_OUT]
            made = part.with_suffix(".tar")  # mmdebstrap takes the format from the name
            include = f"--include={','.join(_packages(linux, runtime))}"
            archives = [f"deb {ARCHIVE} {each} main" for each in suites]
            run("build", program("mmdebstrap"), "--variant=minbase", include, *options, suite, made, *archives)
            made.rename(part)
    return target


def disk(linux: str = OWN_LINUX, runtime: str = OWN_RUNTIME) -> Disk:
    """The disk that guests boot from (each through an overlay of its own), and its kernel."""
    system, kube = root(linux, runtime), peers.kube()
    own = HERE / "guest"
    programs = crio() if runtime == "crio" else {name: tool(name, CONTAINERDS[runtime]) for name in TOOLS}
    name = digest(system.name, kube.name, own, SIZE, *(path.name for path in programs.values()))
    image, kernel = CACHE / f"disk-{name}.img", CACHE / f"vmlinuz-{name}"
    with making(image) as part:
        if part:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                top = Path(folder)
                run("build", "tar", "--numeric-owner", "--xattrs", "-C", top, "-xf", system)
                shutil.copyfile(_kernel_of(top), kernel)
                shutil.rmtree(top / "boot")
                _furnish(top, {**programs, "kube": kube}, own)
                _mke2fs(part, top, SIZE)
    return Disk(image, kernel)


def _kernel_of(top: Path) -> Path:
    """A file system's kernel: in /boot, or where its modules are, as newer packages have it."""
    found = (*top.glob("boot/vmlinuz-*"), *top.glob("usr/lib/modules/*/vmlinuz"))
    if not found:
        raise LabError(f"Debian's {KERNEL} has no kernel in /boot nor with its modules")
    return found[0]


def folder_disk(name: str, size: str, fill: Callable[[Path], None]) -> Path:
    """An ext4 file with what `fill` puts into a folder; `name` must say what that is."""
    target = CACHE / f"{name}.img"
    with making(target) as part:
        if part:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                fill(Path(folder))
                _mke2fs(part, Path(folder), size)
    return target


def overlay(base: Path, target: Path) -> None:
    """A disk that keeps what is written over `base`, which stays as it is."""
    target.unlink(missing_ok=True)
    run("build", program("qemu-img"), "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, target)


def _mke2fs(target: Path, folder: Path, size: str) -> None:
    options = ("-q", "-t", "ext4", "-O", "^metadata_csum", "-E", "lazy_itable_init=1,nodiscard", "-m", "0")
    run("build", program("mke2fs"), *options, "-d", folder, target, size)


def _furnish(top: Path, programs: dict[str, Path], own: Path) -> None:
    """Programs into /usr/local/bin, units and the command server where systemd finds them."""
    for name, path in programs.items():
        shutil.copy2(path, top / "usr/local/bin" / name)
    for name in ("kubelet", "kubectl"):
        (top / "usr/local/bin" / name).symlink_to("kube")
    place = top / "usr/local/lib/lab"
    place.mkdir(parents=True)
    for file in own.iterdir():
        if file.suffix == ".service":
            shutil.copy(file, top / "etc/systemd/system" / file.name)
        elif file.suffix == ".py":
            shutil.copy(file, place / file.name)
        elif file.name == "setup.sh":
            run("build", "sh", file, top)
    (top / "etc/hostname").write_text("guest\n")
