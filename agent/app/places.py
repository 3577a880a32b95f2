"""Where an agent finds its things on a node unless it is told otherwise."""

from __future__ import annotations

from pathlib import Path

DEFAULT_STATE = Path("/var/lib/numalign")
"""The agent's --state-dir, where none is named."""
MOUNT = "/sys/fs/cgroup"
SCRATCH, AUTO = "scratch", "auto"
"""Words of --cgroup-root beside a path: see `agent.app.trees`."""
