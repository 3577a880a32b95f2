"""The files that the base is made from: which they are is in deploy/lock/base.txt, each with its digest.

    recorded()    what the record names
    fetched()     the files, from Debian's archive, or from its snapshots where the archive has dropped one
    repository()  a folder of files that mmdebstrap takes for an archive
    found()       where a signed index of the archive has each package of a base

Who writes the record trusts Debian's signature; whoever reads it needs nobody's word any more, and no particular day.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HELPER = Path("/usr/lib/apt/apt-helper")
"""apt's own download of one file, which compares it with a digest."""
LIVE, SNAPSHOTS = "http://deb.debian.org", "http://snapshot.debian.org/archive"
_MOMENT, _STAMP = re.compile(r"archive of (\S+Z)"), "%Y%m%dT%H%M%SZ"
_LATER = dt.timedelta(days=1)
"""A snapshot is taken some hours after what it shows."""
Fields = Mapping[str, str]


@dataclass(frozen=True)
class Deb:
    """A package's file.

    Attributes:
        name: of the package.
        version: of it.
        path: below Debian's mirror, like "debian/pool/main/g/glibc/libc6_2.36-9_amd64.deb".
        digest: SHA-256 of the file.
    """

    name: str
    version: str
    path: str
    digest: str

    def live(self, root: str) -> str:
        """Its address in the archive as it is."""
        return f"{root}/{self.path}"

    def dated(self, root: str, moment: str) -> str:
        """Its address in the snapshot of a moment."""
        archive, _, path = self.path.partition("/")
        return f"{root}/{archive}/{moment}/{path}"


def recorded(text: str) -> dict[str, list[Deb]]:
    """Architecture -> the files that a record names."""
    found: dict[str, list[Deb]] = {}
    for arch, *rest in (line.split() for line in text.splitlines() if line and not line.startswith("#")):
        found.setdefault(arch, []).append(Deb(*rest))
    return found


def written(of: Mapping[str, Iterable[Deb]], suite: str, moment: str) -> str:
    """The text of a record."""
    lines = [
        f"{arch} {each.name} {each.version} {each.path} {each.digest}"
        for arch, debs in of.items()
        for each in sorted(debs, key=lambda each: each.name)
    ]
    head = f"# The packages of the image's base: Debian {suite}, archive of {moment}. Made by `make base`."
    return "\n".join([head, "# architecture, package, version, file below Debian's mirror, its SHA-256", *lines, ""])


def snapshot_of(text: str) -> str:
    """The snapshot that has all of a record's files: the first that was surely taken after its moment."""
    when = dt.datetime.strptime(moment_of(text), _STAMP).replace(tzinfo=dt.UTC)
    return f"{when + _LATER:{_STAMP}}"


def moment_of(text: str) -> str:
    """What a record's first line says."""
    found = _MOMENT.search(text)
    if found is None:
        raise ValueError("the record names no moment of the archive: `make base` writes it anew")
    return found[1]


def fetched(debs: Iterable[Deb], folder: Path, snapshot: str, live: str = LIVE, snapshots: str = SNAPSHOTS) -> str:
    """Bring files into a folder, each under its digest, unless they are there.

    Args:
        debs: the files.
        folder: where they are kept.
        snapshot: the moment that is asked for what the archive has no more.
        live: the archive's address.
        snapshots: the address of its snapshots.

    Returns:
        "" or, in words, what is not to be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing, said = [*lacking(debs, folder)], ""
    for dated in (False, True):
        if missing and HELPER.exists():
            urls = {each.dated(snapshots, snapshot) if dated else each.live(live): each for each in missing}
            said = _download(urls, folder)
            missing = [*lacking(missing, folder)]
    if not missing:
        return ""
    names = ", ".join(f"{each.name} {each.version}" for each in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    why = said if HELPER.exists() else f"{HELPER} is missing"
    return f"neither the archive nor its snapshot {snapshot} gave {names}{more}: {why}"


def lacking(debs: Iterable[Deb], folder: Path) -> Iterator[Deb]:
    """Those whose file is not there as it has to be."""
    for each in debs:
        file = place(each, folder)
        if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != each.digest:
            file.unlink(missing_ok=True)
            yield each


def place(deb: Deb, folder: Path) -> Path:
    """Where a file is kept."""
    return folder / f"{deb.digest}.deb"


def _download(files: Mapping[str, Deb], folder: Path) -> str:
    """What apt said where it could not bring all."""
    words = [word for url, deb in files.items() for word in (url, str(place(deb, folder)), f"SHA256:{deb.digest}")]
    told = [str(HELPER), "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2", "download-file", *words]
    done = subprocess.run(told, capture_output=True, text=True, timeout=900, check=False)
    return " ".join(done.stderr.split())[-500:]


def repository(debs: Iterable[Deb], folder: Path, into: Path, suite: str) -> str:
    """Make an archive of files that are there; its line for a list of sources.

    It is not signed: what is in it was compared with its digest.
    """
    index = []
    for each in debs:
        shutil.copy(place(each, folder), into / f"{each.digest}.deb")
        control = subprocess.run(
            ["dpkg-deb", "--field", into / f"{each.digest}.deb"], capture_output=True, text=True, check=True
        ).stdout
        size = (into / f"{each.digest}.deb").stat().st_size
        index.append(f"{control}Filename: ./{each.digest}.deb\nSize: {size}\nSHA256: {each.digest}\n")
    text = "\n".join(index).encode()
    (into / "Packages").write_bytes(text)
    sums = f"SHA256:\n {hashlib.sha256(text).hexdigest()} {len(text)} Packages\n"
    (into / "Release").write_text(f"Suite: {suite}\nCodename: {suite}\n{sums}")
    into.chmod(0o755)  # mmdebstrap may read it as another user
    return f"deb [trusted=yes] copy:{into} ./"


def found(versions: Mapping[str, str], lists: Path) -> tuple[list[Deb], str]:
    """The files of packages, by the indexes that apt has verified; and the moment that they are of.

    Args:
        versions: package -> version.
        lists: apt's folder of indexes.
    """
    debs: dict[str, Deb] = {}
    for file in sorted(lists.glob("*_Packages")):
        archive = "debian-security" if "_debian-security_" in f"_{file.name}" else "debian"
        for fields in paragraphs(file.read_text("utf-8")):
            name = fields["Package"]
            if versions.get(name) == fields["Version"]:
                debs.setdefault(
                    name, Deb(name, fields["Version"], f"{archive}/{fields['Filename']}", fields["SHA256"])
                )
    dates = (
        dt.datetime.strptime(date, "%a, %d %b %Y %H:%M:%S UTC").replace(tzinfo=dt.UTC)
        for file in lists.glob("*Release")
        for date in re.findall(r"^Date: (.+)$", file.read_text("utf-8"), re.MULTILINE)
    )
    return [debs[name] for name in sorted(versions)], f"{max(dates):{_STAMP}}"


def paragraphs(text: str) -> Iterator[Fields]:
    """Of a control file (deb822): field -> its first line."""
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line and line[0] != " ")
        if fields:
            yield fields
