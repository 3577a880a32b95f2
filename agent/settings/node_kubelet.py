"""Which known minor answers for a node's own kubelet (`compatibility: kubelet`), and what to say where none is right.

The version is the Node's status.nodeInfo.kubeletVersion, like v1.37.2 or v1.36.3-gke.100. Used by `agent.settings`
and `agent.app.setup`.
"""

from __future__ import annotations

import re

from agent.model.rules import Compatibility, Minor
from agent.settings.kinds import Answers

UNTOLD = Minor.V1_36
"""The version that counts while the kubelet's is unknown: no Node was ever read, or there is none."""
LONGEST = 64
"""Letters of a version that are kept."""
_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,4})(?:[.+-].*)?", re.ASCII)


def followed(answers: Answers, version: str = "") -> Minor:
    """Whose answers are given: the minor that the settings name, or the known one nearest to the node's kubelet."""
    if answers.minor:
        return answers.minor
    told = _parsed(version)
    if told is None:
        return UNTOLD
    if told in _KNOWN:
        return _KNOWN[told]
    return max(Minor) if told > max(_KNOWN) else min(Minor)


def doubt(answers: Answers, version: str = "") -> str:
    """Why the answers may not be those of the node's kubelet, as a sentence; "" where they are."""
    if answers.mode is not Compatibility.KUBELET or answers.minor:
        return ""
    minor, told = followed(answers, version), _parsed(version)
    if told in _KNOWN:
        return ""
    if told is None:
        what = "is not known yet" if not version else f'says "{version}", which cannot be read'
        return f"the version of this node's kubelet {what}: numalign answers as kubelet {minor}"
    which = "newer than any" if told > max(_KNOWN) else "older than any"
    return (
        f"this node's kubelet is {version}, {which} whose rules numalign knows: it answers as kubelet {minor}, and "
        "where the kubelet changed its rules the answers differ"
    )


def _parsed(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else None


_KNOWN = {(1, minor.value): minor for minor in Minor}
