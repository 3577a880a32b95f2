"""One guest: boot it, take what it sends, check that it is whole."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.guests.kernels import kernel
from tests.guests.needs import QEMU, initramfs
from tests.guests.shapes import Shape
from tests.programs import need

STILL = 60
"""Seconds without a new byte from a guest after which it is given up."""
ATTEMPTS = 3
COMMON = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
APPEND = "console=ttyS0 no_timer_check mitigations=off panic=-1"
_SENT = re.compile(r"numalign: sent ([0-9a-f]{64})")


class GuestError(Exception):
    """A guest did not do what it should; the text holds the end of its console."""


@dataclass(frozen=True)
class Sent:
    """What a guest sent.

    Attributes:
        archive: a .tar.gz with its sys and proc.
        command: QEMU's arguments, without paths of this machine.
        seconds: from start to end.
    """

    archive: bytes
    command: tuple[str, ...]
    seconds: float


def boot(
    shape: Shape,
    *,
    image: Path | None = None,
    initrd: bytes | None = None,
    still: float = STILL,
    single: bool = False,
) -> Sent:
    """Boot a shape and wait for its end; raises MissingError and GuestError.

    A guest whose console says nothing new for a while is started again: emulated processors that are set up side by
    side do, rarely, wait for each other for ever when the host is busy.

    Args:
        shape: the machine.
        image: the kernel; `kernels.kernel` without one.
        initrd: the archive that it unpacks; `needs.initramfs` without one.
        still: seconds without a new byte after which it is given up.
        single: one thread of this machine for all processors: Linux 7 has died of more.
    """
    image, initrd = image or kernel(), initramfs() if initrd is None else initrd
    accel = "tcg,thread=single" if single else "tcg"
    told = (*shape.arguments, "-append", f"{APPEND} {shape.append}".strip())
    for left in reversed(range(ATTEMPTS)):
        with tempfile.TemporaryDirectory(prefix="numalign-guest-") as name:
            start = time.monotonic()
            try:
                (Path(name) / "initrd").write_bytes(initrd)
                _run(shape, ("-accel", accel, "-kernel", str(image), *told), Path(name), still)
                return Sent(_received(shape, Path(name)), told, time.monotonic() - start)
            except _StillError as error:
                if not left:
                    raise GuestError(f"{shape.name}: silent for {still:.0f} s, {ATTEMPTS} times; {error}") from error
    raise AssertionError("the last attempt either returns or raises")


class _StillError(Exception):
    """Nothing new on the console."""


def _run(shape: Shape, told: tuple[str, ...], folder: Path, still: float) -> None:
    """Start QEMU and wait for its end."""
    ports = (part for file in ("console", "sent") for part in ("-serial", f"file:{folder / file}"))
    files = ("-initrd", str(folder / "initrd"))
    with (folder / "said").open("w") as said:
        qemu = subprocess.Popen([need(QEMU), *COMMON, *ports, *files, *told], stdout=said, stderr=said)
        try:
            _wait(qemu, folder, still)
        finally:
            qemu.kill()
            qemu.wait()
    if qemu.returncode:
        raise GuestError(f"{shape.name}: QEMU says: {(folder / 'said').read_text('utf-8', 'replace').strip()[-500:]}")


def _wait(qemu: subprocess.Popen[bytes], folder: Path, still: float) -> None:
    """Wait as long as what the guest wrote grows."""
    size, since = -1, time.monotonic()
    while qemu.poll() is None:
        time.sleep(0.1)
        now = sum(path.stat().st_size for path in (folder / "console", folder / "sent") if path.exists())
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > still:
            raise _StillError(_end(folder))


def _received(shape: Shape, folder: Path) -> bytes:
    """What the guest sent, if it is whole."""
    archive = (folder / "sent").read_bytes()
    told = _SENT.search((folder / "console").read_text("utf-8", "replace"))
    if not told or hashlib.sha256(archive).hexdigest() != told[1]:
        raise GuestError(f"{shape.name}: what arrived ({len(archive)} bytes) is not what was sent; {_end(folder)}")
    return archive


def _end(folder: Path) -> str:
    """The last lines of a guest's console."""
    console = folder / "console"
    text = console.read_text("utf-8", "replace") if console.exists() else ""
    return "its console ends with:\n" + "\n".join(text.splitlines()[-15:])
