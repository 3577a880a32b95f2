"""What cgroups shall have, which writes bring them there, and what they have instead.

    naming         which container is which
    desired        what every cgroup shall ask for; plan: the writes, in order; release: their undoing
    drift          why a cgroup differs; enforced: for which pods it does; verify: all of it as a report
    page_policies  the memory policies that containers get, and what is said of them
    writers        which other programs write cpusets

Nothing is written here: `agent.engine` orders, `agent.host.cgroups` writes.
"""
