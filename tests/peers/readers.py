"""cAdvisor's own reader of /sys, in the version of each kubelet: the second referee of discovery.

One small program for each version (`tests/peers/cadvisor`), built from the Go module that the kubelet's release asks
for. What a module's content is checked against, and where it is kept: as for `tests.peers.kubelets`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.model.rules import Minor
from tests.peers import CACHE, HERE, PeerMissingError, built

MODULE = "github.com/google/cadvisor"
VERSIONS = {
    Minor.V1_34: (MODULE, "v0.52.1"),
    Minor.V1_35: (MODULE, "v0.53.0"),
    Minor.V1_36: (MODULE, "v0.56.2"),
    Minor.V1_37: (f"{MODULE}/lib", "v0.60.5"),
    Minor.V1_38: (f"{MODULE}/lib", "v0.60.6"),
}
"""Of the releases of `tests.peers.kubelets`: what their go.mod names."""
SOURCE = HERE / "cadvisor" / "main.go"


def reader(minor: Minor) -> Path:
    """The program of a minor; raises PeerMissingError where it cannot be built."""
    module, version = VERSIONS[minor]
    source = SOURCE.read_text("utf-8").replace(f"{MODULE}/", f"{module}/")
    target = CACHE / f"cadvisor-{version}-{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    needs = f"module numalign.io/tests/peers/cadvisor\n\ngo 1.24.0\n\nrequire {module} {version}\n"
    return built(
        target, f"cadvisor {version}", lambda: {"main.go": source, "go.mod": needs}, "-mod=mod", "-ldflags=-s -w"
    )


def read(program: Path, folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What it makes of each folder that has sys/ and proc/, in order: see the program's head.

    Raises:
        PeerMissingError: this user may neither change the root nor make a user namespace.
    """
    done = subprocess.run([program, *folders], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise PeerMissingError(f"{program.name} cannot read other roots here: {done.stderr[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
