"""Edge: the API server. Few doors, each with one job.

    access         where the API server is and which token is valid now
    handlers       kopf: this node's pods as a stream of events, read-only, supervised
    client         the kubernetes client's transport: single GETs and all writes
    caller         lists with the rights of whoever runs a command, page by page
    publish        what people read: annotations, the condition, Events; queued, deduplicated, retried
    topology_crd   the NodeResourceTopology object that scheduler-plugins reads
    fingerprint    the fingerprint of a node's pods within it

Nothing here decides; nothing but `publisher` and `topology_crd` writes.
"""
