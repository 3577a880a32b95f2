"""One node, served: what is the same with a cluster and with a folder of manifests.

    service           the loop and the pages; asks a source of pods what it has to do
    begin             the engine with its recovered ledger
    followed_setup    settings and machine in force; machine_watch: changes of this machine
    edges             NRI and podresources, where their sockets are; node_events: new cgroup folders
    other_writers     who else writes cpusets; gauges: what the metrics show
    file_switch       the kill switch in the configuration file

Modules are imported by their own names.
"""
