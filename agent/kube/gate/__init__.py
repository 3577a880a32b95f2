"""The API's side of the gatekeeper: what it watches, the patches that it sends, its lease, and its switch.

    list_watch      keeps the objects of a kind in sight: a list, then a watch
    unbound_pods    reads a pod without a node
    references      looks up what such a pod refers to: its namespace, volume claims, and owner
    patches         makes the bodies of patches; pure
    writer          sends an effect of `agent.forecast.gate`, and tells what the API server answered
    lease           one leader among the replicas
    switch          the ConfigMap without which the API server puts a gate on no pod

Loaded by `numalign gatekeeper`, `numalign ungate` and what reads a fleet: no agent of a node loads it.
"""
