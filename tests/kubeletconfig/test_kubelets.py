"""The kubelets themselves, where their decoders are built: fresh files, and no difference that is not intended."""

from __future__ import annotations

import pytest

from tests.kubeletconfig.asking import compared, kubelet
from tests.kubeletconfig.grammar import File, Grammar
from tests.kubeletconfig.intended import meant
from tests.peers import decoders, kubelets


@pytest.mark.parametrize("minor", kubelets.RELEASES)
def test_fresh_files(minor: int) -> None:
    """What the grammar says, on every machine."""
    if not decoders.place(minor).exists():
        pytest.skip(
            f"the decoder of kubelet 1.{minor} is not built: `make decoders MINOR={minor}` builds it, in minutes"
        )
    grammar = Grammar(minor, decoders.gates(minor))
    with kubelet(minor) as theirs:
        for _ in range(300):
            file = grammar.file()
            faults = [found for found in compared(theirs, minor, file) if meant(found) is None]
            assert not faults, f"{faults[0].kubelet} | {faults[0].numalign}\n{file.text}"


def test_a_gate_that_the_kubelet_does_not_know_is_never_asked() -> None:
    """The referee answers that it did not ask the kubelet."""
    minor = next((each for each in kubelets.RELEASES if decoders.place(each).exists()), None)
    if minor is None:
        pytest.skip("no decoder is built: `make decoders` builds them, in minutes each")
    with kubelet(minor) as theirs:
        text = (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {NotAGate: true}\n"
        )
        assert theirs(File(text))["stage"] == "not asked"
