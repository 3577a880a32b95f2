"""Kubelets of other minors than the lab's own, and a control plane of the newest one, for cells of the lab.

Each is one program, built from the Go module of its release.

The versions of all its modules are those that the release itself asks for: its go.mod is read, and the modules that
the Kubernetes project keeps in one repository get the release's own version. The content is checked against the Go
checksum database. A build takes minutes; it is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tests.peers import CACHE, HERE, KUBERNETES, built, kube, tools, unserved

OWN = int(KUBERNETES.split(".")[1])
"""The minor of the lab's own control plane, whose kubelet is a part of the same program (`tests.peers.kube`)."""
RELEASES = {34: "v1.34.4", 35: "v1.35.4", OWN: KUBERNETES, 37: "v1.37.2", 38: "v1.38.0-beta.0"}
NEWEST = max(minor for minor, version in RELEASES.items() if "-" not in version)
"""The newest minor that is released, of the control plane of cells: a kubelet may be OLDER minors older."""
OLDER = 3
PLANE = "NUMALIGN_PLANE"
"""Names the minor of the control plane of tests/cluster, such as 38; the lab's own without it."""
MODULE = "k8s.io/kubernetes"
SERVED = {"sigs.k8s.io/structured-merge-diff/v7": {"v7.0.1": "v7.0.0"}}
"""Modules that the proxy does not serve in the version that a release asks for, and the one in its place."""
UNSERVED = 38
"""The first minor with modules of SERVED or of `tests.peers.unserved`: no older one is built with them."""
STAGED = "./staging/"
KUBELET, ALL = HERE / "kubelet" / "main.go", HERE / "kube" / "main.go"


def plane(minor: int) -> int:
    """The minor of the control plane beside a kubelet: of a beta, its own."""
    return max(NEWEST, minor)


def served() -> int:
    """The minor of the control plane of tests/cluster."""
    return int(os.environ.get(PLANE) or OWN)


def program(minor: int) -> Path:
    """What has the kubelet of a minor of RELEASES: all components, or of an older one the kubelet alone.

    Raises:
        PeerMissingError: it cannot be built.
    """
    if minor == OWN:
        return kube()
    version, source, named = RELEASES[minor], _source(minor), "k8s.io/component-base/version"
    flags = f"-s -w -X {named}.gitVersion={version} -X {named}.gitMajor=1 -X {named}.gitMinor={minor}"
    return built(
        place(minor), f"{source.parent.name} {version}",
        lambda: {source.name: source.read_text("utf-8"), **module_of(version)},
        "-buildvcs=false", "-mod=mod", f"-ldflags={flags}",
    )  # fmt: skip


def _source(minor: int) -> Path:
    return ALL if minor == plane(minor) else KUBELET


def place(minor: int) -> Path:
    """Where the program of a minor that is not the lab's own is kept once it is built."""
    source = _source(minor)
    digest = hashlib.sha256(source.read_bytes() + instead(minor))
    return CACHE / f"{source.parent.name}-{RELEASES[minor]}-{digest.hexdigest()[:16]}"


def instead(minor: int) -> bytes:
    """What a build of a minor depends on for modules that are not served; nothing where all of them are."""
    return Path(unserved.__file__).read_bytes() + json.dumps(SERVED).encode() if minor >= UNSERVED else b""


def module_of(version: str) -> dict[str, str]:
    """The go.mod of a program of a release, and the modules that are made for it."""
    found = read((tools.module(MODULE, version) / "go.mod").read_text())
    replaced = [each["Old"]["Path"] for each in found.get("Replace") or () if each["New"]["Path"].startswith(STAGED)]
    beside = f"v0{version.removeprefix('v1')}"  # v1.34.4 of Kubernetes is v0.34.4 of the modules beside it
    asked = {each["Path"]: beside if each["Path"] in replaced else each["Version"] for each in found["Require"]}
    wanted = "".join(f"\t{path} {at}\n" for path, at in {MODULE: version, **asked}.items())
    lacking = asked if int(version.split(".")[1]) >= UNSERVED else {}
    swapped = {path: SERVED[path][at] for path, at in lacking.items() if at in SERVED.get(path, {})}
    others = {path: f"{path} {at}" for path, at in {**dict.fromkeys(replaced, beside), **swapped}.items()}
    made = [path for path in lacking if path in unserved.MODULES]
    others |= {path: unserved.folder(path) for path in made}
    staged = "".join(f"\t{path} => {at}\n" for path, at in others.items())
    head = f"module numalign.io/tests/peers/release\n\ngo {found['Go']}\n"
    text = f"{head}\nrequire (\n{wanted})\n\nreplace (\n{staged})\n"
    return {"go.mod": text, **{name: each for path in made for name, each in unserved.files(path).items()}}


def read(text: str) -> dict[str, Any]:
    """A go.mod as Go itself tells it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "go.mod").write_text(text)
        return tools.of_go("a release's go.mod", "mod", "edit", "-json", folder=folder)
