"""The state folder: the saved ledger, and the state file beside it with a part for each of these.

    loading           the saved ledger at start, or why it is not used; metered_store: counts its saves
    node_allocatable  what the kubelet keeps from pods; unplaced_pods: refused, waiting and exempt pods
    recovery_report   what a start made of checkpoint, cgroups and pods; last_settings: those in force
    state_file        how its parts are kept and read

Modules are imported by their own names.
"""
