"""What is known of runtimes' versions: the defects that reach a plugin, and the releases that mended them. Pure.

A sandbox that a plugin refuses leaves its record and shim behind, and the next restart of containerd ends in "failed
to reserve sandbox name": containerd 2.0, 2.1, 2.2 before 2.2.6, 2.3 before 2.3.3 (containerd#13355, #13609, #13859;
internal/cri/server/sandbox_run.go of each release).

containerd 1.7 before 1.7.16 can hang for good when a plugin registers while containers start (containerd#10085).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CONTAINERD = "containerd"
KEEPS_REFUSED = {(2, 0): None, (2, 1): None, (2, 2): 6, (2, 3): 3}
"""Minor -> the first patch that undoes a refused sandbox, None for none."""
HANGS = {(1, 7): 16}
"""Minor -> the first patch that survives the registration of a plugin beside the start of a container."""
POLICIES = (0, 12, 5)
"""The first version of NRI that reads a plugin's failure policy."""
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,9}))?(?!\d)", re.ASCII)


def keeps_refused_sandboxes(runtime: str, version: str) -> bool:
    """Whether a runtime keeps the remains of sandboxes that a plugin refuses. A version of no known form does not."""
    return _before(KEEPS_REFUSED, runtime, version)


def hangs_at_registration(runtime: str, version: str) -> bool:
    """Whether a runtime can hang while a plugin registers."""
    return _before(HANGS, runtime, version)


def reads_policies(nri: str) -> bool:
    """Whether a runtime's NRI reads a plugin's failure policy; not where it tells no version."""
    found = _VERSION.match(nri)
    return found is not None and (int(found[1]), int(found[2]), int(found[3] or 0)) >= POLICIES


def _before(mended: Mapping[tuple[int, int], int | None], runtime: str, version: str) -> bool:
    found = _VERSION.match(version) if runtime == CONTAINERD else None
    if found is None:
        return False
    minor = int(found[1]), int(found[2])
    if minor not in mended:
        return False
    first = mended[minor]
    return first is None or int(found[3] or 0) < first
