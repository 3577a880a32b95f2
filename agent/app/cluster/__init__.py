"""A node of a cluster: fed by the API server's watch, telling the API server.

    build             makes the service; start: what is asked of the API first; find_pod: one GET for the runtime
    api_pods          the source of pods: what of it the loop has to do
    remembered_node   what the Node's object says; kill_switch: who stops the agent
    kubelet_questions when the kubelet is asked for its configuration
    claim_lookup      which devices a pod's DRA claims gave it
    topology_loop     keeps the NodeResourceTopology object up to date; decommission: puts the node back on request

Modules are imported by their own names.
"""
