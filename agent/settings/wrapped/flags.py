"""The kubelet's command line, and the lists and files that hold it, by KubeletConfiguration's names.

Flags go before the kubelet's file
(https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/). Forms: `kubelet-arg` of k3s and RKE2,
`kubeletExtraArgs` of kubeadm (a mapping up to v1beta3, name and value from v1beta4 on), KUBELET_EXTRA_ARGS and the
like in files of systemd, shell scripts that name flags.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agent.errors import MalformedError, SettingsError
from agent.model.go import parse_bool
from agent.settings.wrapped.part import KubeletPart

_TEXTS = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-reconcile-period": "cpuManagerReconcilePeriod",
    "kube-reserved-cgroup": "kubeReservedCgroup",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-cpus": "reservedSystemCPUs",
    "system-reserved-cgroup": "systemReservedCgroup",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
}
_MAPS = {
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
}
_EVICTION, _GATES, _MEMORY, _CONFIG = "eviction-hard", "feature-gates", "reserved-memory", "config"
_OURS = (*_TEXTS, *_MAPS, _EVICTION, _GATES, _MEMORY)
_HOLDING = ("config", "kubelet-extra-args", "kubelet-arg", "extra-config")
_NAMED = re.compile(rf"(?:^|[\s\"'=])--(?:{'|'.join((*_OURS, *_HOLDING))})(?=[\s=\"']|$)", re.MULTILINE)
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
_WRAPPING = ("kubelet-extra-args", "kubelet-extra-arg", "kubelet-arg", "k3s-arg")
_MINIKUBE = "extra-config"
_MOST_FLAGS = 1000
_LONGEST_LINE = 16384
_SHOWN = 20
_UNNEEDED = "flags that numalign does not need"


def holds_flags(text: str) -> bool:
    """Whether a text that is no mapping is, or holds, a command line of the kubelet."""
    return _NAMED.search(text) is not None or bool(re.match(r"\s*(?:[A-Z_]*KUBELET[A-Z_]*=|--[a-z])", text))


def part_of_text(text: str, where: str) -> KubeletPart:
    """The flags of a command line, an environment file, a unit of systemd or a script."""
    words = _words(text)
    found = part_of([_dashed(word) for word in words], where)
    script = not all(word.startswith("-") for word in words)
    notes = tuple(note for note in found.notes if not (script and note.startswith(_UNNEEDED)))
    return replace(found, notes=notes)


def _dashed(word: str) -> object:
    """A word of a script that is no flag counts as a flag's value alone."""
    return word if word.startswith("-") or "=" not in word else None


def part_of(given: object, where: str) -> KubeletPart:
    """The flags of a list of texts, a list of names with values, or a mapping.

    Raises:
        SettingsError: a flag's value is malformed.
    """
    body: dict[str, object] = {}
    others: list[str] = []
    notes: list[str] = []
    for number, (name, value) in enumerate(_pairs(given)):
        if number >= _MOST_FLAGS:
            raise SettingsError(where, f"has more than {_MOST_FLAGS} flags; leave out what is not the kubelet's")
        if name == _CONFIG:
            notes.append(f"--config names {value[:80]}, the kubelet's file: check it, too; these flags go before it")
        elif name in _OURS:
            _set(body, name, value, where)
        else:
            others.append(f"--{name[:60]}")
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        notes.append(f"{_UNNEEDED}: {', '.join(others[:_SHOWN])}{more}")
    return KubeletPart(body, where, flags=True, notes=tuple(notes))


def _set(body: dict[str, object], name: str, value: str, where: str) -> None:
    """One flag; of a flag that is there twice the last counts, and maps are added up, as in the kubelet."""
    if name in _TEXTS:
        body[_TEXTS[name]] = value
        return
    key = {_EVICTION: "evictionHard", _GATES: "featureGates"}.get(name, _MAPS.get(name, ""))
    try:
        if name == _MEMORY:
            body["reservedMemory"] = [*_list(body.get("reservedMemory")), *_reserved_memory(value)]
            return
        pairs = dict(_split(value, "<" if name == _EVICTION else "="))
        found: Mapping[str, object] = pairs
        if name == _GATES:
            found = {gate: parse_bool(text) for gate, text in pairs.items()}
    except MalformedError as error:
        raise SettingsError(f"{where}: --{name}", f"{error}; correct the flag") from None
    before = body.get(key)
    body[key] = {**(before if isinstance(before, Mapping) else {}), **found}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _reserved_memory(value: str) -> Iterator[dict[str, object]]:
    """0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi."""
    for entry in value.split(";"):
        node, colon, limits = entry.strip().partition(":")
        if not colon or not node.isdecimal() or len(node) > 5:  # noqa: PLR2004 - digits of a node
            raise MalformedError(f'"{entry[:60]}" is not of the form NODE:memory=AMOUNT')
        yield {"numaNode": int(node), "limits": dict(_split(limits, "="))}


def _split(value: str, sign: str) -> Iterator[tuple[str, str]]:
    for pair in value.split(","):
        if not pair.strip():
            continue
        name, found, text = pair.partition(sign)
        if not found:
            raise MalformedError(f'"{pair[:60]}" is not of the form NAME{sign}VALUE')
        yield name.strip(), text.strip()


def _pairs(given: object) -> Iterator[tuple[str, str]]:
    """(name without dashes, value) of each flag, whatever holds it."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            for each in value if isinstance(value, list) else [value]:
                yield str(name).lstrip("-"), _text(each)
        return
    given = _words(given) if isinstance(given, str) else given
    yield from _pairs_of_list([each for each in given if each is not None] if isinstance(given, list) else [])


def _pairs_of_list(words: Sequence[object]) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if isinstance(word, Mapping):
            if "name" in word:
                yield str(word["name"]).lstrip("-"), _text(word.get("value", ""))
            continue
        name, sign, value = str(word).partition("=")
        bare = name.lstrip("-")
        if not sign and place < len(words) and name.startswith("--") and not str(words[place]).startswith("-"):
            value = str(words[place])
            place += 1
        if bare == _MINIKUBE:
            value = value.removeprefix("kubelet.") if value.startswith("kubelet.") else ""
        if bare in (*_WRAPPING, _MINIKUBE):
            value = value.partition("@")[0]  # k3d: ...@agent:*
            yield from _pairs_of_list([each for each in _words(value) if not each.lstrip("-").startswith(_WRAPPING)])
        elif name.startswith("-") or bare in _OURS or sign:
            yield bare, value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _words(text: str) -> list[str]:
    """The words of all lines, without comments, names of variables and quotes around several flags."""
    found: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True) if len(line) < _LONGEST_LINE else line.split()
        except ValueError:
            words = line.split()
        found += _flat(words)
    return [word for word in found if word]


def _flat(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        bare = word
        for _ in range(2):  # Environment="KUBELET_EXTRA_ARGS=--flag"
            if _VARIABLE.match(bare):
                bare = bare.partition("=")[2].strip("\"'")
        if bare.startswith("--") and " " in bare:
            yield from _flat(bare.split())
        elif bare.startswith("-") or bare == word:
            yield bare
