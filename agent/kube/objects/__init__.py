"""What the API server answers: pods and lists of them, bounded and reduced to what is read.

    listing        cuts the answer to a list into single objects as its bytes arrive
    pod_stream     lists and watches of pods, one pod in memory at a time
    read_fields    the fields of a pod that the agent reads; a new reader adds its field there
    pod_objects    a body -> the pod, its containers' ids, whether it ended
    kept_fields    the fields that are kept while the pod exists
    mirrors        which pod of the API is the mirror of a static pod

    bytes -> listing -> pod_stream (read_fields) -> pod_objects -> the engine

All of it is a tenant's input: a pod may have 1.5 MiB of annotations, and a list a hundred such pods. So each step has
a limit, and what exceeds it becomes a pod that is refused, not an exception of the whole list. A list that is not
complete is an error: a pod that is missing from it would lose its CPUs while it runs (safety rule S13).
"""
