"""A node of a cluster: fed by the API server's watch, telling the API server.

    cluster           the service; build: makes what it is served with; start: what is asked of the API first
    kubelet_questions when the kubelet is asked for its configuration
    topology_loop     keeps the NodeResourceTopology object up to date; leaving: puts the node back on request

Modules are imported by their own names.
"""
