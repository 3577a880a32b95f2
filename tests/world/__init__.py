"""A node with pods, in a test's words: the one place where tests make machines, managers, pods and ledgers.

    manifests   pods as the API lists them
    pods        pods and containers as values
    nodes       the managers of a described machine under settings
    steps       transitions of the engine's state, one event at a time

Hypothesis:

    descriptions  machines as texts
    strategies    nodes, pods, options, ledgers
    documents     whatever a document may hold

A node with cgroups, a store and the engine is `tests.flow.world.World`.
"""
