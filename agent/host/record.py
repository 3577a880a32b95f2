"""Record a machine: just the files that discovery reads, in a small archive that --root accepts.

Called by `agent.cli.record`. Discovery runs on a store that notes each read, so that a recording has what this
version reads and nothing else. It has nothing that could identify the machine: contents are written again from the
parts that discovery understands (no serial number of /proc/cpuinfo, no build host of /proc/version), and names of
folders that are no known kind of sysfs name (a GUID can hold a MAC address) become "anon1". The archive is
deterministic: one machine gives the same bytes each time.
"""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from dataclasses import dataclass, field
from typing import Any

from agent import __version__
from agent.errors import HostError
from agent.host.archives import open_root
from agent.host.files import PROC_LIMIT, FileStore, HostFiles
from agent.host.sysfs.discovery import discover
from agent.host.sysfs.read import RECORDING, SysfsReader
from agent.model.machine import PCI_ADDRESS, Machine

FORMAT = 2
"""Of the first one is what `SysfsReader.is_sparse` says; its content is recorded again as it is."""
FACTS = RECORDING

_LISTED = re.compile(r"(cpu|node|index|memory_tier)\d{1,5}|hugepages-\d{1,12}kB|dax\d+\.\d+|" + PCI_ADDRESS.pattern)
_SAFE_NAME = re.compile(
    r"[a-z][a-z_]{1,23}[0-9.]{0,8}|hugepages-\d{1,12}kB|[A-Z]{3,8}[0-9A-F]{0,4}:[0-9a-f]{2,3}"
    rf"|pci[0-9a-f]{{4,8}}:[0-9a-f]{{2}}|{PCI_ADDRESS.pattern}|\d{{1,6}}|\.\."
)
_DRIVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_SAFE_TEXT = re.compile(
    r"|[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8})*"  # a bitmap
    r"|\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*"  # a list of CPUs or nodes
    r"|-?\d{1,10}[KMG]?|\d{1,5}( \d{1,5})*|0x[0-9a-fA-F]{4,6}"  # a number, a size, distances, a PCI id
    r"|Unified|Data|Instruction|\(null\)"
)
_KEPT_LINES = {
    "cpuinfo": re.compile(r"(processor|physical id|core id|vendor_id)\s*:"),
    "meminfo": re.compile(r"(Node\s+\d+\s+)?(MemTotal|HugePages_Total|Hugepagesize):"),
    "numa_status": re.compile(r"(Node|Status):"),
}
_RELEASE = re.compile(r"Linux version (\d+\.\d+(?:\.\d+)?(?:-\d[\d.]*)?)")
_KUBELET = re.compile(r"v?\d{1,3}\.\d{1,4}(\.\d{1,4})?", re.ASCII)  # what follows may name a build host
_MODEL = re.compile(r"^(?:model name|cpu)\s*:\s*(.{1,80})$", re.MULTILINE)


@dataclass
class NotingStore:
    """A store that notes what is read, so that it can be packed; see agent.host.files.FileStore."""

    inner: FileStore
    label: str = field(init=False)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.label = self.inner.label

    def read(self, path: str, limit: int) -> bytes:
        """Read and note."""
        data = self.inner.read(path, limit)
        self.files[path] = data
        return data

    def target(self, path: str) -> str | None:
        """Follow and note."""
        found = self.inner.target(path)
        if found is not None:
            self.links[path] = found
        return found

    def names(self, path: str) -> list[str]:
        """List, and note the entries that discovery can make use of."""
        found = self.inner.names(path)
        self.folders.add(path)
        for name in found:
            entry = f"{path}/{name}".lstrip("/")
            if _LISTED.fullmatch(name) and self.target(entry) is None and self.inner.kind(entry) == "dir":
                self.folders.add(entry)
        return found

    def kind(self, path: str) -> str:
        """Return the kind of a path, and note a folder."""
        found = self.inner.kind(path)
        if found == "dir":
            self.folders.add(path)
        return found


@dataclass(frozen=True)
class Recording:
    """A packed machine.

    Attributes:
        machine: what it holds.
        archive: the bytes of a .tar.xz.
        members: how many files and links are in it.
    """

    machine: Machine
    archive: bytes
    members: int


def record(files: HostFiles, name: str, *, live: bool, kubelet: str = "") -> Recording:
    """Read a machine and pack what was read.

    Args:
        files: the machine.
        name: the archive's top folder; letters, digits, ".", "_", "+" and "-".
        live: whether it is the machine that this runs on, whose architecture is then noted.
        kubelet: the version of its kubelet, "" when not known.

    Raises HostError when discovery fails, or when what was packed does not give the same machine.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}", name):
        raise HostError(name[:80], "is no name for a recording: letters, digits, '.', '_', '+' and '-', please")
    noting = NotingStore(files.store)
    machine = discover(files.over(noting), name)
    inside = _Packer(files, name)
    version = _KUBELET.match(kubelet)
    facts = {**_facts(files, machine, live=live), "kubelet": version[0] if version else ""}
    inside.add_text(FACTS, json.dumps(facts, indent=1, sort_keys=True) + "\n", top=True)
    for path in sorted(noting.folders):
        inside.add_folder(path)
    for path, target in sorted(noting.links.items()):
        inside.add_link(path, target)
    for path, data in sorted(noting.files.items()):
        if files.virtual(path) != FACTS:
            inside.add_text(path, redact(path, data.decode("utf-8", "replace")))
    return Recording(machine, inside.finish(), len(noting.links) + len(noting.files) + 1)


def check(path: str, machine: Machine) -> None:
    """Read a written recording back; raises HostError when it is another machine than the one recorded."""
    with open_root(path) as files:
        again = discover(files, machine.name)
    if again.digest != machine.digest:
        raise HostError(path, f"gives machine {again.digest}, recorded was {machine.digest}: please report this")


def redact(path: str, text: str) -> str:
    """The part of a file that discovery reads, without anything that names a machine or a part of it."""
    kept = _KEPT_LINES.get(path.rpartition("/")[2])
    if kept:
        return "".join(f"{line}\n" for line in text.replace("\0", "").splitlines() if kept.match(line))
    plain = text.replace("\0", "").strip()
    return f"{plain}\n" if _SAFE_TEXT.fullmatch(plain) else f"(left out: {len(plain)} characters)\n"


def _facts(files: HostFiles, machine: Machine, *, live: bool) -> dict[str, Any]:
    reads = {name: _optional(files, f"proc/{name}") for name in ("version", "cpuinfo")}
    release, model = _RELEASE.search(reads["version"]), _MODEL.search(reads["cpuinfo"])
    return {
        "format": 1 if SysfsReader(files).is_sparse() else FORMAT,
        "numalign": __version__,
        "digest": machine.digest,
        "kernel": release[1] if release else "",
        "architecture": platform.machine() if live else "",
        "cpu": model[1].strip() if model else "",
        "warnings": len(machine.warnings),  # their texts quote files, and come back when the recording is read
    }


def _optional(files: HostFiles, path: str) -> str:
    try:
        return files.read_text(path, PROC_LIMIT)
    except HostError:
        return ""


class _Packer:
    """Builds the archive; every path goes through `_safe`, so that links still meet their targets."""

    def __init__(self, files: HostFiles, name: str) -> None:
        self._files = files
        self._name = name
        self._anonymous: dict[str, str] = {}
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w:xz", preset=3, format=tarfile.GNU_FORMAT)  # noqa: SIM115 - because finish() closes it

    def _safe(self, path: str) -> str:
        folder, _, driver = path.rpartition("/drivers/")
        tail = f"/drivers/{driver}" if folder and _DRIVER.fullmatch(driver) else ""
        parts = (folder if tail else path).split("/")
        return (
            "/".join(part if _SAFE_NAME.fullmatch(part) or not part else self._alias(part) for part in parts) + tail
        )

    def _alias(self, part: str) -> str:
        return self._anonymous.setdefault(part, f"anon{len(self._anonymous) + 1}")

    def _add(self, path: str, kind: bytes, data: bytes = b"", target: str = "", *, top: bool = False) -> None:
        where = path if top else self._safe(self._files.virtual(path))
        if not where:
            return
        member = tarfile.TarInfo(f"{self._name}/{where}")
        member.type = kind
        member.size = len(data)
        member.linkname = target
        member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
        self._tar.addfile(member, io.BytesIO(data))

    def add_text(self, path: str, text: str, *, top: bool = False) -> None:
        self._add(path, tarfile.REGTYPE, text.encode(), top=top)

    def add_folder(self, path: str) -> None:
        self._add(path, tarfile.DIRTYPE)

    def add_link(self, path: str, target: str) -> None:
        """A link keeps its form; an absolute one starts at the recording's own top, as HostFiles reads it."""
        self._add(path, tarfile.SYMTYPE, target=self._safe(target))

    def finish(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()
