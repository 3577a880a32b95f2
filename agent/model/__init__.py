"""Values that every room shares: frozen, hashable where it helps, without I/O and without third-party imports.

    idset      CpuSet and NodeSet: sets of small integers with the kernel's list format
    machine    Machine: everything discovered about a node, one immutable value
    quantity   Kubernetes quantities as exact integers (thousandths)
    pod        Pod, Container: what the managers need to know of a pod
    podspec    from a manifest or API object to a Pod, untrusted; fields reads such documents
    notes      which annotations are kept of a pod; a new one is named there first
    allocated  a running pod with what it really has; manifest_hints: what is odd in a manifest
    hint       Hint, and the three things a provider can say
    ledger     Ledger: what each pod holds; ledgerjson saves and loads it by valuejson, the one codec
    outcome    Admitted | Refused: a refusal is a value with a Reason and its cause
    rules      Rules: the checked settings that decisions depend on
    devices, claims    what devices there are, and what DRA claims gave
    cgroup     cgroups as they are, and what shall be written to them

Nothing here decides; `agent.core` does.
"""
