"""`numalign gatekeeper`: decides for pods before kube-scheduler binds them, and what ends that.

The decision itself is `agent.forecast.gate`.

    gatekeeper    one replica: its lease, its pages, its end
    leader        what the replica that leads does, from the first act to the last
    seen          what the watches told of nodes and their agents, as events for the decision
    seen_pods     the leader's own record of the pods without a node, and what the decision left behind
    looking_up    looks up what gated pods refer to, on a thread of its own
    errands       carries effects out on threads of their own
    figures       what the metrics show
    options       settings of the command
    ungate        `numalign ungate`: takes the gate from every pod, when no replica lives or numalign is removed

No agent of a node loads it (`tests/unit/test_loading.py`).
"""
