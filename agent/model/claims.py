"""Devices that a DRA claim gives a container: chosen by the scheduler, so that they can only be followed (S22).

Made by `agent.kube.claims` from the claim's status and the node's ResourceSlices. In the ledger they stand among
`Ledger.others`, as texts under the name PROVIDER: an older version keeps those that it does not understand, and drops
them with the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import MalformedError
from agent.model.idset import NodeSet

PROVIDER = "claims"
"""The name of the hint provider, and of its part of the ledger."""
MOST_CLAIMS, MOST_DEVICES = 16, 32
"""Claims and devices of one pod that are followed; the API server lets one claim have as many devices."""
LONGEST, LONGEST_WHY = 1000, 200
"""Characters of a device in the ledger, which reads back 1024, and of the reason among them."""
ADMIN = "admin access: it watches the device, and works wherever it runs"
"""Why a device that a monitor looks at gives no hint: it would tear the monitor's pod over all nodes."""
_UNKNOWN = "?"
_FIELDS = 8


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """One device of a claim, as one container has it.

    Attributes:
        claim: the claim's name, in the pod's namespace.
        driver, pool, device: as the driver publishes it.
        nodes: NUMA nodes it is local to, any number; None where they are unknown: then it gives no hint.
        why: which attribute or file says so; of an unknown one why.
        address: its PCI address, "" where it has none.
        share: which share of a device that several claims share, "" for all of it.
    """

    claim: str
    driver: str
    pool: str
    device: str
    nodes: NodeSet | None = None
    why: str = ""
    address: str = ""
    share: str = ""

    @property
    def id(self) -> str:
        """driver/pool/device, as the documents of Kubernetes write it."""
        return f"{self.driver}/{self.pool}/{self.device}"


Claims = Mapping[str, tuple[ClaimDevice, ...]]
"""What a pod's claims gave: devices by container name."""


def to_text(device: ClaimDevice) -> str:
    """One device as a text for the ledger; one with more than LONGEST characters has no place there."""
    nodes = _UNKNOWN if device.nodes is None else str(device.nodes)
    parts = (device.claim, device.driver, device.pool, device.device, nodes, device.address, device.share)
    text = "\t".join(part.replace("\t", " ") for part in parts)
    return f"{text}\t{device.why.replace(chr(9), ' ')[: max(0, min(LONGEST_WHY, LONGEST - len(text) - 1))]}"


def from_text(text: str) -> ClaimDevice | None:
    """The device that `to_text` wrote; None for anything else, as another version may have written it."""
    parts = text.split("\t")
    if len(parts) != _FIELDS or not all(parts[:4]):
        return None
    claim, driver, pool, device, nodes, address, share, why = parts
    try:
        near = None if nodes == _UNKNOWN else NodeSet.parse(nodes)
    except (MalformedError, ValueError):
        return None
    return ClaimDevice(claim, driver, pool, device, near or None, why, address, share)
