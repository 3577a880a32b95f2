"""Parity: every recorded answer of the kubelet, answered again by numalign and compared.

`test_parity.py` runs it. `machines` builds an agent.model Machine from the vectors'
`machine` object; each family of vectors has a module of its name with `answer(input) -> what "expected" holds`.
"""
