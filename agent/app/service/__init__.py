"""What every way of serving a node has in common.

    service           made as a whole or not at all, served until it is stopped
    edges             NRI and podresources, where their sockets are; node_events: cgroup folders, other writers
    machine_watch     changes of this machine; gauges: what the metrics show
    file_switch       the kill switch in the configuration file

Modules are imported by their own names.
"""
