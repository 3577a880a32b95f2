"""Decisions: pure functions of values, without files, clock or network.

The way of a pod:

    request      what it asks for: amounts, annotations
    devices, memory, cpus    where that could lie (hints), and what it gets
    confine      the shared CPUs of a pod that asks to be kept on few nodes
    merge        one affinity out of all hints, as the Topology Manager merges them
    admission    one pod through all of these: granted, refused, or waiting
    accounting   the rules of the ledger that never break, checked after every decision
    cgroups      what must be written, and whether it is in force

Beside it: `explain` says why, `machines` reads machines from descriptions. The rules are
the kubelet's (deploy/docs/dev/kubelet-rules.md); the docstring of each module names its own. Arrows between these
rooms run one way; `make layers` holds them.
"""
