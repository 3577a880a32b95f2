"""The lab: a cluster of QEMU guests with NUMA nodes, in which a real kubelet is the referee. See README.md.

python -m tests.lab needs | up | run | shell | down

needs    what must be installed       plane    etcd, API server, controllers, scheduler on loopback
builds   programs and disks, cached   guest    one QEMU machine, and commands run in it
images   container images as files    node     a guest with containerd and a kubelet
shapes   the machines                 cluster  all of it, up and down
procs    what outlives a command      agent    numalign on a node
driving  pods in, CPUs and nodes out  reading  books and cgroups of a node
store    a disk with images           report   run/lab/report.md
cells    kinds of nodes, the table    crio     CRI-O as a guest's runtime
"""
