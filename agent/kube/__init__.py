"""Edge: the API server. Reads this node's pods and its Node; writes reports, Events and the topology object.

    watch           reads: this node's pods, its Node and namespaces, as calls on the engine
    objects         reduces the API's objects to the bounded part that the agent reads
    publishing      writes: annotations and conditions of pods, Events, and the end of refused pods
    pod_report      makes the report of one pod: its annotations and conditions; pure
    client          single requests of an agent; access: where the API server is, and the token that is valid now
    caller          lists with the rights of the user of a command, page by page
    nodes           reads a Node; claims, resource_slices: reads DRA claims and slices
    topology_crd    the NodeResourceTopology object that scheduler-plugins reads; fingerprint: of the pods in it;
                    placement: of their containers
    configz         the kubelet's configuration, asked of the kubelet
    decommission    the annotations by which an agent is asked to release its node

Terms: a *body* is an object as the API sends it; the *uid* of a pod is metadata.uid, but for a static pod, whose uid
is the hash of its manifest, and metadata.uid is that of its mirror.

Nothing here decides on pods. Only `publishing`, `topology_crd` and `decommission` write. Each read of an agent names
its node, so that its cost does not grow with the cluster. A body is a tenant's input: bounded and checked before use.
What is read or written may change here; what the agent does about it is decided in `agent.node` and `agent.core`.
"""
