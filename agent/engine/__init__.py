"""One immutable state, and the order of effects: one lock, save before act, shrink before grant.

    engine       the lock, a method for each event        transitions  what an event makes of the state; pure
    admitter     pods that come together                  state        all that is known, as one value
    keeper       checks and saves what is to count        deciding, line, following, carry ...  the transitions' parts
    governor     brings the kernel to it, and tells       enforcer     plans, writes, reads back

Names no edge; see engine.ports.
"""
