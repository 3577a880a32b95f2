"""`python -m tests.hostile`: ask a real kube-apiserver which kinds it takes, and write answers.json."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests import peers
from tests.cluster.control_plane import ControlPlane
from tests.hostile import asking

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, ControlPlane(peers.kube(), Path(folder)) as plane:
        asking.write(plane)
