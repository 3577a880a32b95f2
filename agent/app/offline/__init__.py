"""What an agent left behind, for commands that run without it or after it.

    offline           its saved ledger, its cgroup tree, and the names of its containers
    folder            the state folder, as commands read it
    queries           what `explain` and `plan` ask about; releasing: what `release` does
    decommission      asks every agent of a cluster to put its node back

Modules are imported by their own names.
"""
