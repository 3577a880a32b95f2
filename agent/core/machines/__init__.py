"""Machines: from descriptions and files, as JSON, as the kubelet sees them, and what changed between two of them.

    synthetic      a machine from a short text; lstopo: from the XML of hwloc
    facts          a machine as JSON; changes: what differs between two readings; identity: is a ledger of this one?
    kubelet_view   the machine by the kubelet's (cAdvisor's) reading; uncore: its uncore caches
    in_force       what the kubelet's own cgroup leaves of the machine
    tiers, pcie    nodes without CPUs and the CPU nodes near to them; how near PCI functions are
    per_machine    keeps what is worked out of a machine once

Files are read by `agent.host`; here are values only.
"""
