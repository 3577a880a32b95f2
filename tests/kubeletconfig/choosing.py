"""Which files are recorded: every row's example, the files of tools, and of the grammar one or two of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any

from tests.kubeletconfig.asking import Kubelet, compared, kubelet, pattern
from tests.kubeletconfig.compare import NOT_ASKED
from tests.kubeletconfig.grammar import File, Grammar
from tests.kubeletconfig.recorded import Recorded
from tests.kubeletconfig.singles import singles
from tests.peers import decoders, kubelets

TWICE = 2


def asked_of_all(files: Iterable[File]) -> Iterator[Recorded]:
    """Every kubelet's answer to each file."""
    with ExitStack() as stack:
        asked = [stack.enter_context(kubelet(minor)) for minor in kubelets.RELEASES]
        for file in dict.fromkeys(files):
            yield _asked(asked, file)


def chosen(count: int, seed: int) -> Iterator[Recorded]:
    """Every kubelet's answer to single values and to files of the grammar, where it is of a kind that is new.

    Args:
        count: files of the grammar to choose from.
        seed: of the grammar.
    """
    with ExitStack() as stack:
        asked = [stack.enter_context(kubelet(minor)) for minor in kubelets.RELEASES]
        known = [decoders.gates(minor) for minor in kubelets.RELEASES]
        free = {name: spec for name, spec in known[0].items() if all(_free(gates.get(name)) for gates in known)}
        grammar, kinds = Grammar(seed, free), Counter[tuple[Any, ...]]()
        for file in chain(singles(), (grammar.file() for _ in range(count))):
            found = _asked(asked, file)
            kind = tuple(_kind(found, minor) for minor in found.answers)
            kinds[kind] += 1
            if kinds[kind] <= TWICE and len(found.answers) == len(asked):
                yield found


def _free(spec: Mapping[str, Any] | None) -> bool:
    return spec is not None and not spec["locked"]


def _asked(kubelets_asked: list[Kubelet], file: File) -> Recorded:
    answers = {each.minor: each.answer(file) for each in kubelets_asked}
    return Recorded(file, {minor: told for minor, told in answers.items() if told.get("stage") != NOT_ASKED})


def _kind(found: Recorded, minor: int) -> tuple[Any, ...]:
    told = found.answers[minor]
    differences = compared(lambda _: dict(told), minor, found.file)
    return (
        told["accepted"],
        told.get("stage"),
        pattern(told.get("error", "")),
        *((each.mode, each.what) for each in differences),
    )
