"""Container images as docker-archive files, written here: no registry is asked, none is run.

play()     a static busybox, for pods that do something; also the sandbox ("pause") of every pod
archive()  any image, from layers
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.guests.needs import BUSYBOX
from tests.lab.builds import making
from tests.lab.needs import program
from tests.lab.places import CACHE, digest

PLAY = "numalign.lab/play:1"
"""Its command is `sleep infinity`; a shell and busybox's programs are in /bin."""
APPLETS = (
    "sh", "cat", "cut", "dd", "echo", "env", "grep", "head", "kill", "ls", "mkdir", "mount", "nproc", "ps", "rm",
    "sed", "seq", "sleep", "sort", "tail", "taskset", "test", "tr", "true", "umount", "wc", "yes",
)  # fmt: skip


def play() -> Path:
    """The archive of PLAY."""
    busybox = Path(program(BUSYBOX))
    target = CACHE / f"play-{digest(busybox, *APPLETS)}.tar"
    with making(target) as part:
        if part:
            part.write_bytes(play_of(busybox.read_bytes()))
    return target


def play_of(busybox: bytes, arch: str = "amd64") -> bytes:
    """PLAY with a busybox of an architecture."""
    layer = _layer({"bin/busybox": busybox}, {f"bin/{name}": "busybox" for name in APPLETS})
    return archive(PLAY, [layer], command=["/bin/sleep", "infinity"], arch=arch)


def _layer(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    """A tar of programs and symbolic links; the same bytes every time."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), stat.S_IFREG | 0o755
            tar.addfile(entry, io.BytesIO(data))
        for name, to in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            tar.addfile(entry)
    return made.getvalue()


def archive(
    name: str, layers: Sequence[bytes], *, command: Iterable[str], path: str = "/bin", arch: str = "amd64"
) -> bytes:
    """A docker-archive (https://github.com/moby/docker-image-spec) of one image, of tars, the lowest first."""
    names = [f"{hashlib.sha256(layer).hexdigest()}/layer.tar" for layer in layers]
    config = json.dumps({
        "architecture": arch, "os": "linux", "config": {"Cmd": list(command), "Env": [f"PATH={path}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
    }).encode()  # fmt: skip
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": names}]).encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for each, data in ((config_name, config), *zip(names, layers, strict=True), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(each)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()
