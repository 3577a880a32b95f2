"""Hypothesis: descriptions of machines, as `agent.core.machines.synthetic` reads them."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def descriptions(draw: st.DrawFn, *, dies: bool = True) -> str:
    """Small machines with everything that real ones bring: holes in ids, memory-only nodes, offline CPUs, devices."""
    sockets, nodes, cores = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    threads, many_dies = draw(st.integers(1, 2)), draw(st.integers(1, 2)) if dies else 1
    caches = draw(st.integers(1, cores))
    total = sockets * many_dies * nodes
    cpus = total * cores * threads
    ids = draw(st.lists(st.integers(0, 40), min_size=total, max_size=total, unique=True).map(sorted))
    one, some = st.sampled_from(ids), st.integers(0, cpus - 1)
    kinds = st.sampled_from(["dram", "hbm", "far", "gpu"])
    parts = [
        f"{sockets} sockets x {many_dies} dies x {nodes} nodes x {cores} cores x {threads} threads",
        f"node ids {','.join(map(str, ids))}",
        f"{caches * threads} cpus per l3",
        f"{draw(st.integers(1, 64))}G per node",
    ]
    optional = [
        f"{draw(st.integers(0, 200))} 2Mi pages on {draw(one)}",
        f"{draw(st.sampled_from(['gpu', '2 nics', '3 vfs', 'nvme']))} on {draw(one)}",
        f"memory node {draw(st.integers(0, 8))}G {draw(kinds)} near {draw(one)}",
        f"isolated {draw(some)}",
        f"efficiency {draw(some)}",
        f"offline {draw(some)}" if cpus > 1 else "distance 10 21",
        "adjacent threads",
    ]
    chosen = draw(st.lists(st.sampled_from(optional), max_size=5, unique=True))
    return ", ".join(parts + chosen)
