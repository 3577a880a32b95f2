"""Edge: this node's files, cgroups, and the sockets of the runtime and the kubelet.

    sysfs          a machine from /sys and /proc; files: opens them beneath a root; machines: which machine is meant
    cgroups        the kubelet's cgroups: scanned, watched, written, read back
    nri            the runtime: containers before they start, by its plugin protocol
    podresources   the kubelet: which devices it gave to which container
    checkpoint     the saved ledger
    settings_file, manifests, workloads, documents    files that users write, with bounds
    record, archives, lstopo                          machines as files
    standin, scratch, processes    cgroups and containers where there is no kubelet (`numalign run --pods`)
    page_policy    the memory policy of a process
    writers        finds other programs that write cpusets

Nothing here decides. All that is read is bounded and checked (`bounded`), since tenants and other programs write it.
A read that fails raises HostError with the path. A write is read back before anything is reported.
"""
