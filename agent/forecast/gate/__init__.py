"""Decides for gated pods: which node a pod is released to, which nodes it must avoid, and what it waits for.

    values     what the API tells of a pod and a node, and the settings
    events     what happens, and what is to be done about it: values both
    state      one immutable value with all that the gatekeeper knows
    step       (state, events, moment) -> (state, effects)
    line       the order of the pods that wait, gangs, and the head that no later pod may delay
    wait       the moment until which a pod may be held
    views      the nodes by what they answer to one kind of pod: only nodes that have changed are asked again
    books      the decision of one node, with all pods in flight laid in
    release    where a pod goes and which names its NotIn has
    rules      R1 to R7: when a pod may be nominated
    telling    the sentence of a pod that waits
    rehearsal  what would become of pods: the steps, on nodes and a scheduler on paper

Everything here is a pure function of values: the time is an argument. The decision is the node's own, from its
summary, so that a pod that is released to a node is refused there only where the node has changed since.
"""
