"""A node that is served from a folder of pod manifests.

    build             makes the service
    folder_pods       the source of pods; served_folder: which pods and containers a folder has
    runtime           plays kubelet and runtime; static_pods: which static pod is which

Modules are imported by their own names.
"""
