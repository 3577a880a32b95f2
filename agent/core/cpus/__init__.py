"""Exclusive CPUs: the kubelet's static CPU Manager policy.

    provider       hints and grants, as the admission asks for them
    pools          reserved, shared and isolated CPUs; hints: where a number of CPUs could lie
    choose         the CPUs of a request; packed and distributed are the two algorithms
    topology       the CPUs of each core, cache, node and socket
    pods           pods that are managed as a whole

Rules 4 of the kubelet.
"""
