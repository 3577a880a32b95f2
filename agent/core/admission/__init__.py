"""One pod through all managers: in, with what it gets, or out, with the reason.

    node           the managers of one node; pod: one pod's way through them
    alignment      whether a grant lies as its policy wants; pressure: whether memory fits what nodes really have
    waiting        the line of pods that wait for room; resize: a running pod whose requests change

Rules 2 and 7 of the kubelet.
"""
