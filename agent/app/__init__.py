"""The composition root: the only room that knows every other. Builds the edges, hands them to the engine, runs them.

    standalone   a folder of pod manifests on this machine, no API server: `numalign run --pods`
    runtime      plays kubelet and runtime for those pods, where there is no kubelet
    trees        which cgroup tree is served: a scratch one, one of our own on a real hierarchy, or the kubelet's
    setup        settings and machine, read and followed as they change
    views        what people are shown, as values

Called by `agent.cli.run`.
"""
