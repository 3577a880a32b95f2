"""What a kubelet makes of a KubeletConfiguration: the program of tests/peers/kubeletconfig, built over a release.

The functions of the kubelet that no other package can call are cut out of the release's own source while it is built.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.peers import CACHE, HERE, PeerMissingError, built, digest, kubelets, tools

SOURCE = HERE / "kubeletconfig"
CUT = {
    "cmd/kubelet/app/server.go": (
        "loadConfigFile", "kubeletConfigFlagPrecedence", "newFakeFlagSet", "newFlagSetWithGlobals", "getReservedCPUs",
        "parseResourceList",
    ),
    "pkg/kubelet/cm/helpers.go": ("hardEvictionReservation",),
    "pkg/kubelet/cm/node_container_manager_linux.go": (
        "(cm *containerManagerImpl) GetNodeAllocatableReservation",
        "(cm *containerManagerImpl) validateNodeAllocatable",
    ),
    "pkg/kubelet/cadvisor/util.go": ("CapacityFromMachineInfo",),
}  # fmt: skip
"""Functions by the release's file that has them."""
_IMPORTS = re.compile(r"^import \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r'^\t(?:(\w+) )?("[^"]+")$', re.MULTILINE)


def decoder(minor: int) -> Path:
    """The program of a minor of `kubelets.RELEASES`; minutes when it is not cached.

    Raises:
        PeerMissingError: it cannot be built.
    """
    if minor not in kubelets.RELEASES:
        raise PeerMissingError(f"kubelet 1.{minor} is none of {', '.join(kubelets.RELEASES.values())}")
    version = kubelets.RELEASES[minor]

    def files() -> dict[str, str]:
        cuts = enumerate(cut(tools.module(kubelets.MODULE, version)))
        return {
            **{path.name: path.read_text("utf-8") for path in SOURCE.glob("*.go")},
            **{f"cut{number}.go": text for number, text in cuts}, **kubelets.module_of(version),
        }  # fmt: skip

    options = ("-buildvcs=false", "-mod=mod", "-ldflags=-s -w", "-tags", f"kubelet{minor}")
    return built(place(minor), f"the decoder of kubelet {version}", files, *options)


def place(minor: int) -> Path:
    """Where the program of a minor is kept once it is built."""
    key = digest(SOURCE.glob("*.go"), json.dumps(CUT).encode() + kubelets.instead(minor))
    return CACHE / f"kubeletconfig-{kubelets.RELEASES[minor]}-{key}"


def cut(release: Path) -> Iterator[str]:
    """One Go file of package main for each file of CUT, with its functions and the imports that these use.

    Raises:
        PeerMissingError: a function is not where it was.
    """
    for file, names in CUT.items():
        text = (release / file).read_text("utf-8")
        bodies = "\n".join(_function(text, file, name) for name in names)
        imports = _IMPORTS.search(text)
        found = _IMPORT.findall(imports[1] if imports else "")
        used = [f"\t{alias} {path}" for alias, path in found if _uses(bodies, alias or _package(path))]
        yield "package main\n\nimport (\n" + "\n".join(used) + "\n)\n\n" + bodies


def _function(text: str, file: str, name: str) -> str:
    found = re.search(rf"^func {re.escape(name)}\(.*?^}}\n", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise PeerMissingError(f"{file} of this release has no function {name}")
    return found[0]


def _package(path: str) -> str:
    """The name of a package that is imported without one: the last part of its path, a module's version aside."""
    parts = path.strip('"').split("/")
    return parts[-2] if re.fullmatch(r"v[2-9]", parts[-1]) else parts[-1]


def _uses(text: str, name: str) -> bool:
    """Whether Go code uses a package; a variable of that name is none."""
    return bool(re.search(rf"\b{name}\.", text)) and not re.search(rf"\b{name} :?= ", text)


def ask(minor: int, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kubelet's answers, in the order of the questions (`question` and `answer` in main.go).

    Raises:
        PeerMissingError: the program cannot be built.
    """
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run([decoder(minor)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def gates(minor: int) -> dict[str, dict[str, Any]]:
    """Every gate that a kubelet knows: its default, whether it is locked, its stage.

    Raises:
        PeerMissingError: the program cannot be built.
    """
    done = subprocess.run([decoder(minor), "gates"], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found
