"""The composition root: the only room that knows every other. Builds the edges, hands them to the engine, runs them.

    cluster      a node of a cluster; standalone: a folder of pod manifests, without an API server
    fleet        all nodes of a cluster, from what each published: for `fleet` and `simulate`
    offline      what an agent left behind: for `release`, `verify`, `explain`, `plan`; simulate: `numalign simulate`
    service      one node, served: the loop, the engine's start, the edges
    page         the node page, and the values that people are shown
    setup        settings and machine, read and followed as they change; trees: which cgroup tree is served
    reporters    who hears of what the engine does
    statedir     the files beside the ledger

Called by `agent.cli`. Arrows between these rooms run downwards; `make layers` holds them.
"""
