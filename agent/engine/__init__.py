"""The order of effects: one lock, save before act, shrink before grant. Names no edge; see engine.ports."""
