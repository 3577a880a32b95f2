"""The kubelet's podresources socket: which devices it gave which container, and on which NUMA nodes.

    podresources.proto   the messages we read (podresources_pb2.py is generated from it)
    client               List, Get and GetAllocatableResources over the unix socket, within the kubelet's rate limit

Facts: kubelet rule 6.6 (what podresources lists); https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
#monitoring-device-plugin-resources
"""
