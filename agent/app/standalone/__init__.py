"""A node that is served from a folder of pod manifests.

    standalone        the service; build: makes what it is served with
    runtime           plays kubelet and runtime; static_pods: which static pod is which

Modules are imported by their own names.
"""
