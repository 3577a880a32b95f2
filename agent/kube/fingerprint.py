"""The fingerprint of a node's pods, "pfp0v001...", by which scheduler-plugins sees that its picture is current.

Facts: github.com/k8stopologyawareschedwg/podfingerprint. Each pod is XXH64(name) seeded with XXH64(namespace); the
sorted hashes, as little-endian bytes, are hashed again. Pods of the same name and namespace count twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import xxhash

from agent.model.pod import ContainerKind, Pod, Qos
from agent.model.quantity import is_whole

METHOD = "with-exclusive-resources"


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given as (namespace, name); their order does not matter."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), seed=xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    return "pfp0v001" + xxhash.xxh64_hexdigest(b"".join(each.to_bytes(8, "little") for each in hashes))


def container_hash(namespace: str, pod: str, container: str) -> int:
    """Return the number by which numaplacement orders containers."""
    return xxhash.xxh64_intdigest(f"{namespace}\0{pod}\0{container}".encode())


def counts(pod: Pod, zone_resources: frozenset[str]) -> bool:
    """Return True if a pod belongs into the fingerprint by METHOD: it holds, or could hold, something exclusively."""
    return any(True for _ in exclusive(pod, zone_resources))


def exclusive(pod: Pod, zone_resources: frozenset[str]) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each container that could hold something exclusively, with these requests in whole units.

    An app container or sidecar asks for a device that the zones list, or the pod is Guaranteed and it asks for whole
    CPUs, memory or huge pages. Ordinary init containers do not count.
    """
    for container in pod.containers:
        if container.kind is not ContainerKind.INIT:
            found = {
                resource: -(-milli // 1000)
                for resource, milli in container.requests.items()
                if milli > 0 and _is_exclusive(pod, resource, milli, zone_resources)
            }
            if found:
                yield container.name, found


def _is_exclusive(pod: Pod, resource: str, milli: int, zone_resources: frozenset[str]) -> bool:
    if resource in {"cpu", "memory"} or resource.startswith("hugepages-"):
        return pod.qos is Qos.GUARANTEED and (resource != "cpu" or is_whole(milli))
    return resource in zone_resources
