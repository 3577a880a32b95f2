"""What a pod asks for: amounts by the managers' formulas, annotations, and which pods are left alone.

    amounts        CPUs, memory and devices that the managers count
    annotations    the annotations of numalign.io, checked: `PodSettings`, with a `Problem` for each bad value
    exclusive, mixed, isolated, memory_policy    annotations that depend on the node's settings; each with its check
    late           annotations that came after the pod was placed
    exempt         pods that are left alone (safety rule S2)

Annotations reach these modules only if `agent.model.notes` names them. A bad value never refuses a pod: the node's
default applies, and the pod gets the Event BadAnnotation.
"""
