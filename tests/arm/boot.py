"""Boot the guest, wait for its end, take what it sent."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.arm import builds
from tests.guests.shapes import ARM
from tests.lab.needs import LabError
from tests.lab.places import RUN

SECONDS, ATTEMPTS = 900.0, 2
"""For a boot and all that is asked; how often a guest that does not come to its end is started."""
ROOM = 32 << 20
"""Bytes of the disk that the guest sends by."""
COMMON = ("-accel", "tcg,thread=multi", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
VERSIONS = RUN / "arm-versions"
"""Of what ran in the guest, a line each; kept for the page of the lab's cells."""
APPEND = "console=ttyAMA0 root=/dev/nvme0n1 rw init=/init panic=-1 quiet"


@dataclass(frozen=True)
class Sent:
    """What the guest sent.

    Attributes:
        files: name -> text.
        command: QEMU's arguments that say what the machine is.
    """

    files: Mapping[str, str]
    command: tuple[str, ...]


def boot() -> Sent:
    """Boot it; raises ProgramMissingError, or LabError with the end of its console."""
    told = (*ARM.arguments, "-append", APPEND)
    said = ""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="numalign-arm-") as name:
            folder = Path(name)
            sent, console = folder / "sent", folder / "console"
            with sent.open("wb") as file:
                file.truncate(ROOM)
            try:
                subprocess.run(
                    [builds.qemu(), *COMMON, *told, "-serial", f"file:{console}", *_disks(builds.disk(), sent)],
                    check=True, capture_output=True, timeout=SECONDS,
                )  # fmt: skip
                found = _received(sent)
                VERSIONS.parent.mkdir(parents=True, exist_ok=True)
                VERSIONS.write_text(found.get("versions", ""))
                return Sent(found, told)
            except (subprocess.SubprocessError, tarfile.TarError) as error:
                text = console.read_text("utf-8", "replace") if console.exists() else ""
                said = f"{error}; its console ends with:\n{text[-2000:]}"
    raise LabError(f"the guest of 64-bit ARM did not come to its end: {said}")


def _disks(image: Path, sent: Path) -> list[str]:
    """The kernel and two namespaces of one NVMe controller; what is written to the first one is dropped."""
    found = ["-kernel", str(builds.kernel()), "-device", "nvme,serial=arm"]
    for name, file, more in (("disk", image, ",snapshot=on"), ("sent", sent, "")):
        found += ["-drive", f"file={file},format=raw,if=none,id={name},cache=unsafe{more}"]
        found += ["-device", f"nvme-ns,drive={name}"]
    return found


def _received(sent: Path) -> dict[str, str]:
    with tarfile.open(sent) as files:
        found = {Path(each.name).name: files.extractfile(each) for each in files if each.isfile()}
        return {name: file.read().decode("utf-8", "replace") for name, file in found.items() if file}
