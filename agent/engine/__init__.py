"""The effects on one node: one lock, and one order in which they happen.

    decide -> check the invariants -> save -> shrink the shared pool -> grant -> read back -> tell

    engine       the lock, and a method for each event      backoff      when a repair may be made again
    effects      saves the state, has the kernel follow     occupancy    which CPUs a container has not left yet
    enforcer     compares, plans, writes, reads back        ports        the edges, as Protocols

Nothing is written that was not saved, and nothing is told that was not read back. What an event makes of the state is
decided by `agent.node`; this package may be changed without a change of any decision. It names no edge and opens no
file: `agent.app` passes the edges in.
"""
