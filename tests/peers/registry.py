"""A registry of images and charts on this machine's loopback: crane's own."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.peers import tools


@contextlib.contextmanager
def serving(disk: Path) -> Iterator[str]:
    """Its address, like 127.0.0.1:5000; the disk is a folder for its blobs."""
    disk.mkdir(exist_ok=True)
    command = [str(tools.crane()), "registry", "serve", "--address", "127.0.0.1:0", "--disk", str(disk)]
    with tempfile.NamedTemporaryFile() as log, subprocess.Popen(command, stderr=log) as process:
        said = Path(log.name)
        try:
            while (found := re.search(r"serving on port (\d+)\n", said.read_text())) is None:
                assert process.poll() is None, said.read_text()
                time.sleep(0.05)
            yield f"127.0.0.1:{found.group(1)}"
        finally:
            process.kill()
