"""One node, served: what is the same with a cluster and with a folder of manifests.

    service           the loop and the pages; asks a source of pods what it has to do
    begin             the engine with its recovered ledger
    followed_setup    settings and machine in force; machine_watch: changes of this machine
    edges             NRI and podresources, where their sockets are; node_events: new cgroup folders
    other_writers     finds other writers of cpusets; file_switch: the kill switch in the configuration file
    gauges            the values of the metrics; affinities: containers that were started on a part of their CPUs
    memory_policies   containers with the memory policy that they ask for, and without it
    container_notes   what both of these are: sentences on pods, of the last look

Modules are imported by their own names.
"""
