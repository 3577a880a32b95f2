"""The effects on one node: one lock, and one order in which they happen.

    decide -> check the invariants -> save -> shrink the shared pool -> grant -> read back -> report

    engine       the lock, and a method for each event      backoff      when a repair may be made again
    effects      saves the state, has the kernel follow     occupancy    which CPUs a container has not left yet
    enforcer     compares, plans, writes, reads back        ports        the edges, as Protocols

Only what was saved is written, and only what was read back is reported. `agent.node` decides what an event makes of
the state; a change of this package changes no decision. The package names no edge and opens no file: `agent.app`
passes the edges in.
"""
