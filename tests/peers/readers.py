"""cAdvisor's own reader of /sys, in the version of each kubelet: the second referee of discovery.

One small program for each version (`tests/peers/cadvisor`), built from the Go module that the kubelet's release asks
for. What a module's content is checked against, and where it is kept: as for `tests.peers.kubelets`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.model.rules import Minor
from tests.peers import CACHE, HERE, PeerMissingError, compiled, locked

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
    with locked(target):
        if not target.exists():
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "main.go").write_text(source, "utf-8")
                head = "module numalign.io/tests/peers/cadvisor\n\ngo 1.24.0\n\n"
                (Path(folder) / "go.mod").write_text(f"{head}require {module} {version}\n", "utf-8")
                part = target.with_suffix(f".{os.getpid()}")
                compiled(
                    f"cadvisor {version}", "build", "-mod=mod", "-ldflags=-s -w", "-o", part, ".", cwd=Path(folder)
                )
                part.rename(target)
    return target


def read(program: Path, folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What it makes of each folder that has sys/ and proc/, in order: see the program's head.

    Raises:
        PeerMissingError: this user may neither change the root nor make a user namespace.
    """
    done = subprocess.run([program, *folders], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise PeerMissingError(f"{program.name} cannot read other roots here: {done.stderr[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
