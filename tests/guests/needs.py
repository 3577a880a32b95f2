"""What a guest needs: QEMU, busybox, an initramfs, and a kernel (`kernels`). Checked before anything is booted."""

from __future__ import annotations

import gzip
import stat
import struct
import subprocess
from pathlib import Path

from tests import peers
from tests.programs import MissingError, need

QEMU, BUSYBOX, APT, DPKG = "qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb"
META = "linux-image-cloud-amd64"
"""The package whose dependency is the kernel's: small, with NUMA, HMAT, hot-plug and NVMe built in."""
KERNEL = "NUMALIGN_GUEST_KERNEL"
"""Environment variable: a kernel to boot instead of Debian's."""
LINUX = peers.CACHE.parent / "guests" / "linux"
"""Where kernels are kept, outside the work tree."""
INIT = Path(__file__).with_name("init.sh")
_ELF_INTERPRETER = 3


def static_busybox() -> bytes:
    """The program that runs alone in a guest; raises MissingError where this one cannot."""
    busybox = Path(need(BUSYBOX)).read_bytes()
    if _is_dynamic(busybox):
        raise MissingError("busybox is linked dynamically and cannot run alone: apt-get install busybox-static")
    return busybox


def initramfs() -> bytes:
    """A compressed newc archive with busybox and init.sh, as the kernel unpacks it."""
    folder, node = stat.S_IFDIR | 0o755, stat.S_IFCHR | 0o600
    entries = [
        entry(1, "bin", folder),
        entry(2, "bin/busybox", stat.S_IFREG | 0o755, static_busybox()),
        entry(3, "init", stat.S_IFREG | 0o755, INIT.read_bytes()),
        entry(4, "dev", folder),
        entry(5, "dev/console", node, device=(5, 1)),
        entry(6, "TRAILER!!!", 0),
    ]
    return gzip.compress(b"".join(entries), 6, mtime=0)


def entry(
    number: int, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0), *, time: int = 0
) -> bytes:
    """One member: https://docs.kernel.org/driver-api/early-userspace/buffer-format.html."""
    fields = (number, mode, 0, 0, 1, time, len(data), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _is_dynamic(program: bytes) -> bool:
    """Whether a 64-bit ELF file names an interpreter (elf(5), PT_INTERP)."""
    start, size, count = (
        struct.unpack_from(form, program, at)[0] for form, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    return any(struct.unpack_from("<I", program, start + size * n)[0] == _ELF_INTERPRETER for n in range(count))


def run(command: list[str], folder: Path | None = None) -> str:
    """Run a program of Debian's, and give back what it says; raises MissingError."""
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise MissingError(f"{' '.join(command)} failed: {error.stderr.strip()[-300:]}") from error
    return done.stdout
