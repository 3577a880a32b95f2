"""A node of a cluster: its pods come from the API server's watch, and reports of them go to the API server.

    build             makes the service
    start             reads the Node and its pods at the start, if the API answers in time
    api_pods          the source of pods, with the work that the loop does for it
    find_pod          one GET for a pod that the runtime starts before the watch brought it
    remembered_node   the Node's fields, as the watch brought them and as they are saved
    kill_switch       stops the engine when the Node, the settings or a request to release say so
    kubelet_questions when the kubelet is asked for its configuration
    claim_lookup      the devices that a pod's DRA claims gave it
    topology_loop     keeps the NodeResourceTopology object up to date; summary: the node's summary in it
    decommission      releases the node on request

Each of these may be absent or away: without an answer of the API the agent starts from its ledger and its cgroups.
No thread of an NRI request waits for the API, but for `find_pod`, which has a limit (safety rule S9).
"""
