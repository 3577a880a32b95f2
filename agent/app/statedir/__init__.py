"""The state folder: the saved ledger and the small files beside it.

    loading           the saved ledger at start, or why it is not used; metered_store: counts its saves
    node_allocatable  what the kubelet keeps from pods; unplaced_pods: who is refused, waits or is left alone
    recovery_report   what a start made of checkpoint, cgroups and pods; json_file: how these files are replaced

Modules are imported by their own names.
"""
