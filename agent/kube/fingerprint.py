"""The fingerprint of a node's pods, "pfp0v001...", by which scheduler-plugins sees that its picture is current.

Facts: github.com/k8stopologyawareschedwg/podfingerprint. Each pod is XXH64(name) seeded with XXH64(namespace); the
sorted hashes, as little-endian bytes, are hashed again. Pods of the same name and namespace count twice.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.quantity import is_whole

METHOD = "with-exclusive-resources"


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given as (namespace, name); their order does not matter."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), seed=xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    return "pfp0v001" + xxhash.xxh64_hexdigest(b"".join(each.to_bytes(8, "little") for each in hashes))


def counts(pod: Pod, zone_resources: frozenset[str]) -> bool:
    """Return True if a pod belongs into the fingerprint by METHOD: it holds, or could hold, something exclusively.

    An app container or sidecar asks for a device that the zones list, or the pod is Guaranteed and one of them asks
    for whole CPUs, memory or huge pages. Ordinary init containers do not count.
    """
    running = [each for each in pod.containers if each.kind is not ContainerKind.INIT]
    return any(_exclusive(pod, container, zone_resources) for container in running)


def _exclusive(pod: Pod, container: Container, zone_resources: frozenset[str]) -> bool:
    for resource, milli in container.requests.items():
        if milli <= 0:
            continue
        native = resource in {"cpu", "memory"} or resource.startswith("hugepages-")
        if not native:
            if resource in zone_resources:
                return True
        elif pod.qos is Qos.GUARANTEED and (resource != "cpu" or is_whole(milli)):
            return True
    return False
