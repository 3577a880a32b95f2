"""Memory and huge pages by NUMA node: the kubelet's Memory Manager, and memory without CPUs.

    provider       hints and grants, as the admission asks for them
    hints          where memory could lie; placement: which rule places it; choose: which nodes it gets
    books          taking bytes from nodes and giving them back; reuse: what init containers leave
    beyond         memory of nodes without CPUs, for the CPU nodes near to them
    confined       what confined pods may use; pods: pods that are managed as a whole

Rules 5 of the kubelet.
"""
