"""The composition root, the only package that knows every other: builds the edges and the engine, and runs them.

    service      one node, served: the loop, the start of the engine, the edges
    cluster      a node of a cluster: its pods come from the API server
    standalone   a folder of pod manifests, without an API server
    setup        settings and machine, read at the start and again as they change
    reporters    passes what the engine does to logs, metrics, the node page, the API and the kubelet's devices
    statedir     the state folder: the saved ledger, and the state file beside it
    page         the node page, and the values that users are shown
    fleet        all nodes of a cluster, from what each published: for `fleet` and `simulate --cluster`
    simulate     `numalign simulate`
    offline      what an agent left behind: for `release`, `verify`, `explain`, `plan`
    trees        opens the cgroup tree that is served; places: where an agent has its folders

    cli -> build (of cluster or standalone) -> service: its loop asks the source of pods and the setup for work

Terms: a *source* brings a node's pods and takes reports of them; a *part* is an object with a thread of its own; a
*turn* is one pass of the loop; a *setup* is settings and machine with the node made of both.

Nothing is decided here. Everything is complete when it is built, and nothing runs before `service` starts it. How
parts are connected, started and stopped may change here. Imports between these packages run downwards; `make layers`
checks them. Modules are imported by their own names.
"""
