"""A configuration that is right on its machine: policies, reservations that add up, options, gates."""

from __future__ import annotations

from tests.kubeletconfig import values
from tests.kubeletconfig.draw import Draw, Pairs, flow
from tests.kubeletconfig.machines import machine

READ = (
    "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "CPUManagerPolicyOptions",
    "DisableCPUQuotaWithExclusiveCPUs", "PodLevelResourceManagers", "PodLevelResources",
    "PodLevelResourcesFixKubeletQOSClass", "TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions",
    "TopologyManagerPolicyOptions", "AllAlpha", "AllBeta",
)  # fmt: skip
"""Gates that the managers read."""
CPU_OPTIONS = (
    "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "distribute-cpus-across-cores",
    "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache",
)  # fmt: skip
CLOSEST, MOST = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
_EVICTION = {100: '{memory.available: "100Mi"}', 256: '{memory.available: "256Mi", nodefs.available: "10%"}'}


def plain(draw: Draw, where: str) -> Pairs:
    """One for a machine."""
    static = draw.chance(0.85)
    pairs = [
        ("cpuManagerPolicy", "static" if static else "none"),
        ("topologyManagerPolicy", draw.one(values.TOPOLOGY_POLICIES[:4])),
        ("topologyManagerScope", draw.one(values.SCOPES[:2])),
        *_reservations(draw, where),
    ]
    if static and draw.chance(0.4):
        pairs.append(("cpuManagerPolicyOptions", flow({draw.one(CPU_OPTIONS): draw.one(('"true"', '"false"'))})))
    if draw.chance(0.3):
        option = draw.one(((CLOSEST, '"true"'), (MOST, '"10"'), (MOST, '"8"')))
        pairs.append(("topologyManagerPolicyOptions", flow(dict([option]))))
    if draw.chance(0.4):
        pairs.append(("cpuManagerReconcilePeriod", draw.one(("10s", "0s", "5m0s"))))
    if draw.chance(0.4):
        pairs.append(("featureGates", _gates(draw)))
    if draw.chance(0.3):
        name, texts = draw.one(values.OTHER)
        pairs.append((name, texts[0]))
    return pairs


def _reservations(draw: Draw, where: str) -> Pairs:
    """CPUs by name or number, and memory by NUMA node that adds up to what the whole node keeps."""
    found = machine(where)
    kept, eviction = draw.one((256, 1024, 1536)), draw.one((100, 256))
    how = draw.one(("named", "kube", "system", "both"))
    system, kube, pairs = {"memory": f"{kept}Mi"}, {}, []
    if how == "named":
        pairs.append(("reservedSystemCPUs", draw.one(('"0"', '"0-1"', '"0,2"', f'"{len(found.online) - 1}"'))))
    if how in ("kube", "both"):
        kube["cpu"] = draw.one(('"1"', "500m", '"1500m"', '"2"'))
    if how in ("system", "both"):
        system["cpu"] = draw.one(('"1"', "250m", "1750m"))
    if kube:
        pairs.append(("kubeReserved", flow(kube)))
    pairs += [("systemReserved", flow(system)), ("evictionHard", _EVICTION[eviction])]
    if not draw.chance(0.35):
        return [*pairs, ("memoryManagerPolicy", "None")]
    total, nodes = kept + eviction, [node.id for node in found.nodes][:2]
    sizes = [total // 2, total - total // 2] if len(nodes) > 1 else [total]
    rows = (f"{{numaNode: {n}, limits: {{memory: {size}Mi}}}}" for n, size in zip(nodes, sizes, strict=True))
    return [*pairs, ("memoryManagerPolicy", "Static"), ("reservedMemory", f"[{', '.join(rows)}]")]


def _gates(draw: Draw) -> str:
    read = [name for name in READ if name in draw.gates]
    names = [draw.one(read if draw.chance(0.7) else draw.gates) for _ in range(draw.one((1, 1, 2)))]
    return flow({name: draw.one(("true", "false")) for name in names})
