"""Parity: every recorded answer of the kubelet, answered again by numalign and compared.

`python -m tests.parity FILE...` runs it (see --help). `machines` builds an agent.model Machine from the vectors'
`machine` object; each family of vectors has a module of its name with `answer(input) -> what "expected" holds`.
"""
