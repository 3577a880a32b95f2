"""What would become of pods, here or on the nodes of a fleet. Pure; nothing is written.

    dry_run            the transitions of `agent.node` on a copy of a state
    simulation         many pods over time on one or several nodes
    cluster_question   where the pods of a workload would go in a fleet; cluster_remedies: which change lets them in
    whatif, gains      the node's pods under another policy
    node_summary       a node in short, as its object carries it; nameless: without names
    scheduling, placing    what kube-scheduler would do: sums, selectors, affinity, taints
    workload, workload_kinds, owners, pod_templates    pods out of Deployments, Jobs and other objects
    fleet              the figures and questions of many summaries

Every answer is made by the agent's own decision, so that a forecast differs from what a node does only where the node
has changed since. An agent that publishes no summary loads none of this.
"""
