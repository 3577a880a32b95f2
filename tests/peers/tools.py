"""Helm and the other tools of the chart's checks, built by version from the Go module proxy into the cache.

    helm()         installs, upgrades, removes; renders and lints
    helm4()        the next major version, which GitOps tools use
    kubeconform()  objects against Kubernetes' schemas
    helm_docs()    the chart's table of values, from README.md.gotmpl and values.yaml
    cosign()       signs images and files by a key, and verifies them; minutes when it is not cached
    crane()        reads and writes registries; `crane registry serve` is one
    krew()         kubectl's plugin manager, and krew_validator(), which its index is checked by
    unittest()     helm-unittest, run as `untt CHART`; its module has no installable name: see tests/peers/unittest

A module's content is checked against the Go checksum database, so the version is the whole key.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tests.peers import CACHE, SECONDS, PeerMissingError, build, compiled, go, making

TOOLS = CACHE.parent / "tools"
_HELM_FLAGS = " ".join(
    f"-X helm.sh/helm/v3/{package}.k8sVersion{part}"
    for package in ("pkg/chartutil", "pkg/lint/rules")
    for part in ("Major=1", "Minor=36")
)
"""What Helm's own Makefile sets: the Kubernetes that `helm template` renders for where none is asked."""


def _install(package: str, version: str, ldflags: str = "") -> Path:
    """Path of a program of a module; raises PeerMissingError when there is no Go or the build fails."""
    name = package.rpartition("/")[2]
    target = TOOLS / f"{name}-{version}"
    with making(target) as part:
        if part:
            with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
                flags = f"-ldflags=-s -w {ldflags}".rstrip()
                compiled(f"{name} {version}", "install", flags, f"{package}@{version}", GOBIN=folder)
                Path(folder, name).rename(part)
    return target


helm = partial(_install, "helm.sh/helm/v3/cmd/helm", "v3.22.0", _HELM_FLAGS)
helm4 = partial(_install, "helm.sh/helm/v4/cmd/helm", "v4.2.1")
"""In the version by which Argo CD 3.5 renders and Flux 2.8 installs."""
kubeconform = partial(_install, "github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
helm_docs = partial(_install, "github.com/norwoodj/helm-docs/cmd/helm-docs", "v1.14.2")
unittest = partial(build, "unittest", package="github.com/helm-unittest/helm-unittest/cmd/helm-unittest")
cosign = partial(_install, "github.com/sigstore/cosign/v2/cmd/cosign", "v2.6.5")
crane = partial(_install, "github.com/google/go-containerregistry/cmd/crane", "v0.22.1")
krew = partial(_install, "sigs.k8s.io/krew/cmd/krew", "v0.4.3")
krew_validator = partial(_install, "sigs.k8s.io/krew/cmd/validate-krew-manifest", "v0.4.3")


def cyclonedx() -> Path:
    """A Python that has CycloneDX's own library with its schemas, by a lock with hashes."""
    lock = Path(__file__).parents[1] / "release/cyclonedx.txt"
    target = TOOLS / f"cyclonedx-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    with making(target / "ready") as part:
        if part:
            pip = (target / "bin/pip", "install", "--quiet", "--require-hashes", "-r", lock)
            for command in ((sys.executable, "-m", "venv", "--clear", target), pip):
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
                if done.returncode:
                    raise PeerMissingError(f"CycloneDX's library cannot be installed:\n{done.stderr[-1000:]}")
            part.touch()
    return target / "bin/python"


def module(path: str, version: str) -> Path:
    """The folder of a Go module's source, for the data that it has; raises PeerMissingError."""
    return Path(of_go(f"{path} {version}", "mod", "download", "-json", f"{path}@{version}")["Dir"])


def of_go(what: str, *arguments: str, folder: str = "/") -> dict[str, Any]:
    """What a command of Go answers in JSON; raises PeerMissingError."""
    program = go.find()
    if program is None:
        raise PeerMissingError(f"{what} is fetched by Go, and there is none on this machine", "go")
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder,
            env={**os.environ, **go.AS_ASKED},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"{what} was not fetched within {SECONDS:.0f} s") from None
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode:
        raise PeerMissingError(f"{what} cannot be fetched:\n{found.get('Error') or done.stderr[-1000:]}")
    return found
