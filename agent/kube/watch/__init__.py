"""From the API server: this node's pods, its Node and the namespaces, as events for the engine.

    handlers       kopf in a thread of its own: a watch of this node's pods and its Node; reads only
    heartbeat      notices each chunk of a watch, bookmarks included
    intake         the queue and the thread between kopf and the engine: many pods are decided together
    namespaces     the annotations of namespaces, read when a pod needs them, and cached
    kopf_alone     imports kopf without the Kubernetes clients

    API server -> handlers -> intake -> engine

Terms: an *event* is an added, changed or deleted pod; a *list* is the set of all pods at one moment, by which missed
deletions are found; a pod is *set aside* when it cannot be read or decided, and counts as existing.

kopf's event loop only hands over. A fault of one pod stays with that pod, and a watch that ends starts again. Scope,
delays and batching may be changed here; no other kopf handler than `on.event` may be used, as others write to pods.
"""
