"""Values that every room shares: frozen, hashable where it helps, without I/O and without third-party imports.

    idset      CpuSet and NodeSet: sets of small integers with the kernel's list format
    machine    Machine: everything discovered about a node, one immutable value
    quantity   Kubernetes quantities as exact integers (thousandths)
    pod        Pod, Container: what the managers need to know of a pod
    podspec    from a manifest or API object to a Pod, untrusted; fields reads such documents
    workload   pods that a manifest or a dump asks for: workload_kinds and pod_templates read objects, owners counts
               every pod once, manifest_hints says what is odd, allocated takes what a running pod really has
    hint       Hint, and the three things a provider can say
    ledger     Ledger: what each pod holds; ledgerjson saves and loads it
    outcome    Admitted | Refused: a refusal is a value

Nothing here decides; `agent.core` does.
"""
