"""Which of the kubelet's rules holds in which minor version: one table, so that algorithms read names, no numbers.

Each field of `KubeletRules` says for which minors it holds. Under Compatibility.FIXED none of them does: the mended
answer is the same for every kubelet. Source: the differences of the kubelet's own code between v1.34.4, v1.35.4,
v1.36.3, v1.37.2 and v1.38.0-beta.0. The answers of all five are compared with numalign's (tests/parity).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, get_type_hints

from agent.model.rules import Compatibility, Minor, Rules


@dataclass(frozen=True, slots=True)
class Since:
    """The rule holds from this minor on."""

    minor: Minor

    def holds(self, minor: Minor) -> bool:
        """Whether it does."""
        return minor >= self.minor


@dataclass(frozen=True, slots=True)
class Until:
    """The rule holds up to this minor, itself included."""

    minor: Minor

    def holds(self, minor: Minor) -> bool:
        """Whether it does."""
        return minor <= self.minor


@dataclass(frozen=True, slots=True)
class KubeletRules:
    """What a kubelet does that another minor does otherwise; all off is the mended answer.

    Attributes:
        cores_before_state: full-pcpus-only is checked before it is seen that the container has its CPUs (defect D1,
            kubernetes issue 129078).
        distribute_in_socket: distribute-cpus-across-numa with align-by-socket prefers nodes of one socket (kubernetes
            PR 139778).
        share_lowered: distribute-cpus-across-numa lowers the even share to what each chosen node can give. Where the
            kubelet then never returns (D14), numalign says "accounting error", as kubelet 1.36 does.
        shared_memory_unasked: the memory manager asks nothing for a container that shares its pod's memory (gate
            PodLevelResourceManagers); before, it had no node for it (defect D10).
        empty_resources_ignored: `spec.resources: {}` of a static pod does not count for its QoS class (gate
            PodLevelResourcesFixKubeletQOSClass); before, it made the pod BestEffort.
        requests_as_written: pod-level requests of a static pod that its manifest lacks stay absent (gate
            PodLevelResourcesFixDefaulting); before, the kubelet filled them in as the API server does.
        devices_everywhere: hints for devices are made from all nodes, not from those alone that have devices.
        averages: a core or a socket is whole when as many of its CPUs are free as units have on average (defect D15);
            since 1.38, as in the mended answer, when all of its own are.
        caches_first: prefer-align-cpus-by-uncorecache takes whole caches by their own size first, and then looks for
            one that holds the rest; before, each cache in turn is asked for both, and whole ones by average size.
        spread_by_number: distribute-cpus-across-cores takes single CPUs of a socket by number.
        spread_by_free: it goes round the cores of a socket, from the one with the fewest free CPUs on (defect D26).
        overwritten: a remembered combination of NUMA nodes changes when later ones are built (defects D2, D14).
        nodes_counted: distribute-cpus-across-numa begins with as many nodes as the affinity has, where so many can be
            used at all (defect D6 ends).
        pods_kept: a pod that is managed as a whole keeps its CPUs and memory, has its missing CPUs completed, or is
            released and taken again (defect D9 ends).
        held_by_container: with pod scope, held memory is compared with the request of the container that holds it
            (defect D11 ends by half, and D28 begins).
        init_types: with pod scope, types of memory that init containers alone ask for count.
    """

    cores_before_state: Annotated[bool, Until(Minor.V1_36)] = False
    distribute_in_socket: Annotated[bool, Since(Minor.V1_37)] = False
    share_lowered: Annotated[bool, Since(Minor.V1_37)] = False
    shared_memory_unasked: Annotated[bool, Since(Minor.V1_37)] = False
    empty_resources_ignored: Annotated[bool, Since(Minor.V1_37)] = False
    requests_as_written: Annotated[bool, Since(Minor.V1_37)] = False
    devices_everywhere: Annotated[bool, Until(Minor.V1_35)] = False
    averages: Annotated[bool, Until(Minor.V1_37)] = False
    caches_first: Annotated[bool, Since(Minor.V1_38)] = False
    spread_by_number: Annotated[bool, Until(Minor.V1_37)] = False
    spread_by_free: Annotated[bool, Since(Minor.V1_38)] = False
    overwritten: Annotated[bool, Until(Minor.V1_37)] = False
    nodes_counted: Annotated[bool, Since(Minor.V1_38)] = False
    pods_kept: Annotated[bool, Since(Minor.V1_38)] = False
    held_by_container: Annotated[bool, Since(Minor.V1_38)] = False
    init_types: Annotated[bool, Since(Minor.V1_38)] = False


MENDED = KubeletRules()
"""What Compatibility.FIXED goes by."""


def _of(minor: Minor) -> KubeletRules:
    hints = get_type_hints(KubeletRules, include_extras=True)
    return KubeletRules(**{each.name: hints[each.name].__metadata__[0].holds(minor) for each in fields(KubeletRules)})


_BY_MINOR = {minor: _of(minor) for minor in Minor}


def kubelet_rules(rules: Rules) -> KubeletRules:
    """What holds under these rules."""
    return _BY_MINOR[rules.minor] if rules.compatibility is Compatibility.KUBELET else MENDED
