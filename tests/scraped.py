"""What an agent says of itself to tests that ask: its pages, and what /proc has of its process."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

from tests.patience import PATIENCE


def page(address: str, path: str) -> tuple[int, str]:
    """Status and text of a page at host:port, whatever the status."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def status(pid: int, name: str) -> int:
    """A number of /proc/<pid>/status: Threads, VmHWM (KiB)."""
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    assert found, name
    return int(found[1])


def values(text: str) -> dict[str, float]:
    """The lines of /metrics: name and labels -> value."""
    lines = (each.rpartition(" ") for each in text.splitlines() if not each.startswith("#"))
    return {name: float(value) for name, _, value in lines}
