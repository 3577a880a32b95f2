"""Somebody's desk: kubectl, our plugin and numalign on the PATH, and a kubeconfig for a test's control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ADMIN, ControlPlane, kubeconfig

PLUGIN = Path(__file__).parents[2] / "deploy" / "kubectl-numalign"
COMPLETION = PLUGIN.with_name("kubectl_complete-numalign")
_FORWARDING = """#!/bin/sh
# kubectl with a port-forward that needs no kubelet: it says what the real one says, for a port that is there already
for word in "$@"; do
    if [ "$word" = port-forward ]; then
        [ -n "$PAGE_PORT" ] || { echo 'error: unable to forward port because pod is not running' >&2; exit 1; }
        echo "Forwarding from 127.0.0.1:$PAGE_PORT -> 9178"
        exec sleep 60
    fi
done
exec "$REAL_KUBECTL" "$@"
"""


class Desk:
    """Runs commands there, as the cluster's admin; `program` has Kubernetes' components, kubectl among them."""

    def __init__(self, cluster: ControlPlane, program: Path, folder: Path, namespace: str) -> None:
        real, self.path = folder / "real", folder / "bin"
        real.mkdir(parents=True)
        self.path.mkdir()
        (real / "kubectl").symlink_to(program)
        for each in (PLUGIN, COMPLETION):
            (self.path / each.name).symlink_to(each)
        wrapper = self.path / "kubectl"
        wrapper.write_text(_FORWARDING)
        wrapper.chmod(0o755)
        config = folder / "kubeconfig"
        config.write_text(kubeconfig(cluster.server, cluster.ca, {"token": ADMIN}, namespace))
        self.environment = {
            **os.environ, "KUBECONFIG": str(config), "REAL_KUBECTL": str(real / "kubectl"), "HOME": str(folder),
            "PATH": f"{self.path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "PAGE_PORT": "",
        }  # fmt: skip

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints; fails unless it ends with that code. Errors come after the output."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )
        assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def json(self, *command: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(*command))
