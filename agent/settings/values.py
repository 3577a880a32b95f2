"""The kinds of values that settings have, each with its check: a sentence that says what is wrong and what to write.

Used by `agent.settings.model` alone. The checks raise ValueError; `agent.settings.fields` puts the key before it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from agent.errors import MalformedError
from agent.model.exclusive import ALLOWED, Selection, parsed
from agent.model.fields import LABEL
from agent.model.go import parse_duration
from agent.model.idset import MAX_ID, CpuSet
from agent.model.machine import PCI_ADDRESS
from agent.model.notes import LONGEST_LIST
from agent.model.quantity import Amount, nano_of
from agent.settings.fields import checked, text, told, whole

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}
RECONCILE_PERIOD = 10.0
"""Seconds of cpuManagerReconcilePeriod where it is unset."""
LONGEST = 366 * 86400.0
LONGEST_RESOURCE = 317
_LIKE = {"cpu": "500m", "pid": "1000"}
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_SIGNALS = frozenset(
    {
        "memory.available", "allocatableMemory.available", "pid.available", "nodefs.available", "nodefs.inodesFree",
        "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree",
    }
)  # fmt: skip
_PERCENT = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,9})?%", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_PAGES = re.compile(r"hugepages-[1-9][0-9]*(?:Ki|Mi|Gi|Ti|Pi|Ei)?", re.ASCII)


def _unfit(why: str) -> ValueError:
    return ValueError(why)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value[:40]}"'
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _duration(value: object) -> float:
    """Go's notation, as everywhere in KubeletConfiguration; a number alone would leave its unit open."""
    if not isinstance(value, str) or len(value) > 32 or not _DURATION.fullmatch(value):  # noqa: PLR2004 - 1h30m0.5s is far shorter
        raise _unfit(f"{_shown(value)} is not a duration; write it like 90s, 10m or 1h30m")
    seconds = sum(Fraction(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
    if seconds > LONGEST:
        raise _unfit(f"{_shown(value)} is longer than a year; write a shorter one")
    return float(seconds)


def _go_duration(value: object) -> float:
    """Seconds; zero is the kubelet's word for unset, and any Go program that writes the whole type writes 0s."""
    try:
        nanoseconds = parse_duration(value) if isinstance(value, str) else _no_duration(value)
    except MalformedError as error:
        raise _unfit(f"{error}; write one like 10s or 1m") from None
    return nanoseconds / 10**9 or RECONCILE_PERIOD


def _no_duration(value: object) -> int:
    raise MalformedError(f"{_shown(value)} is not a duration")


def _cpu_list(value: object) -> CpuSet:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if 0 <= value <= 1 << 16 else "a huge number"  # YAML reads 3 as a number
    if not isinstance(value, str):
        raise _unfit(f'{_shown(value)} is not a list of CPUs; write it in quotes, like "0-1,8"')
    try:
        return CpuSet.parse(value)
    except MalformedError as error:
        raise _unfit(f'{error}; write it like "0-1,8"') from None


def _amounts(value: object, what: str, names: tuple[str, ...] | None, *, negative: bool = False) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _unfit(f"must be a mapping of {what} to quantities, such as {{memory: 1Gi}}")
    found: dict[str, int] = {}
    for name, given in value.items():
        if names and name not in names:
            raise _unfit(f"{_shown(name)} cannot be reserved; possible are {', '.join(names)}")
        if given is None or given == "":
            raise _unfit(f"{name}: has no value; write a quantity like {_LIKE.get(name, '1Gi')}, or remove the line")
        try:
            found[str(name)] = Amount.parse(given)
        except MalformedError as error:
            raise _unfit(f"{name}: {error}") from None
        if found[str(name)] < 0 and not negative:
            raise _unfit(f"{name}: {_shown(given)} is negative; write zero or more")
    return found


def _reservation(value: object) -> dict[str, int]:
    return _amounts(value, "resources", _RESERVABLE)


def _limits(value: object) -> dict[str, int]:
    """Amounts below zero pass: policy Static alone refuses them (`agent.settings.conflicts`)."""
    found = _amounts(value, "memory and hugepages-<size>", None, negative=True)
    for name, milli in found.items():
        if name != "memory" and not _PAGES.fullmatch(name):
            raise _unfit(f"{_shown(name)} cannot be reserved per node; possible are memory and hugepages-<size>")
        if milli == 0:
            raise _unfit(f"{name}: zero is not a reservation; remove the line")
    return found


def _thresholds(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _unfit("must be a mapping of signals to thresholds, such as {memory.available: 100Mi}")
    found: dict[str, str] = {}
    for name, given in value.items():
        if name not in _SIGNALS:
            raise _unfit(f"{_shown(name)} is no eviction signal; known are {', '.join(sorted(_SIGNALS))}")
        if not isinstance(given, str) or not given:
            raise _unfit(f'{name}: {_shown(given)} is not a threshold; write it in quotes, like "100Mi" or "5%"')
        if given.endswith("%"):
            if not _PERCENT.fullmatch(given) or float(given[:-1]) > 100:  # noqa: PLR2004 - percent
                raise _unfit(f'{name}: {_shown(given)} is no percentage between "0%" and "100%"')
        elif not any(_amounts({name: given}, "signals", None).values()):
            raise _unfit(f'{name}: {_shown(given)} is not positive; write "0%" to switch the threshold off')
        found[name] = given
    return found


def _options(value: object) -> dict[str, str]:
    """KubeletConfiguration has texts here; YAML's true and 8 mean the same and are taken too."""
    if not isinstance(value, Mapping):
        raise _unfit('must be a mapping of options to texts, such as {full-pcpus-only: "true"}')
    found: dict[str, str] = {}
    for name, given in value.items():
        if not isinstance(name, str) or not isinstance(given, str | bool | int) or _enormous(given):
            raise _unfit(f'{_shown(name)}: {_shown(given)} is not an option\'s value; write "true" or "false"')
        found[name] = str(given).lower() if isinstance(given, bool) else str(given)
    return found


def _enormous(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 64  # noqa: PLR2004 - bits


def _ip_address(value: object) -> str:
    """A name would need a resolver, and could come to mean another address later."""
    try:
        return str(ipaddress.ip_address(value)) if isinstance(value, str) else _no_address(value)
    except ValueError:
        return _no_address(value)


def _no_address(value: object) -> str:
    raise _unfit(f"{_shown(value)} is not an IP address; write one like 127.0.0.1 or ::1")


def _host_name(value: object) -> str:
    if not isinstance(value, str) or len(value) > 253 or not _HOST.fullmatch(value):  # noqa: PLR2004 - RFC 1035
        raise _unfit(f"{_shown(value)} is not a host name; write it without a port, like node-1.example.com")
    return value.lower()


def _exclusive(value: object) -> Selection:
    found = parsed(value) if isinstance(value, str) and len(value) <= LONGEST_LIST else None
    if found is None:
        raise _unfit(f"{_shown(value)} is not one of {ALLOWED}")
    return found


def _resource(name: object) -> str:
    if not isinstance(name, str):
        raise _unfit(f"{told(name)} is not a text; write a text, like numalign.io/nic")
    if len(name) > LONGEST_RESOURCE:
        raise _unfit(f"{told(name)} is longer than {LONGEST_RESOURCE}; write a value within the bounds")
    domain, _, rest = name.partition("/")
    if "." not in domain or not rest or "/" in rest or " " in name or not name.isprintable():
        raise _unfit(f'"{name[:60]}" is not a resource of ours; write a domain and a name, like numalign.io/nic')
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise _unfit(f'"{name[:60]}" belongs to Kubernetes; use a domain of your own, like numalign.io/nic')
    return name


def closed(names: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a schema that lets these names through and no other: name or pattern -> schema of its value.

    Not by `propertyNames`: Helm then shows a wrong key under the path of another value.
    """
    patterns = {f"^{name.replace('.', '[.]')}$": kind for name, kind in sorted(names.items())}
    return {"additionalProperties": False, "patternProperties": patterns}


def _show_seconds(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _show_amounts(found: Mapping[str, int]) -> dict[str, str]:
    return {name: _show_amount(milli) for name, milli in sorted(found.items())}


def _show_amount(milli: int) -> str:
    nano = nano_of(milli)
    for unit, suffix in ((10**9, ""), (10**6, "m"), (10**3, "u")):
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


# What a schema can say of the checks above, so that `helm upgrade` refuses before anything changes. A pattern takes
# nothing that its check refuses by its form; sizes (a year, the last CPU) are the checks' alone.
_RANGE = "[0-9]{1,5}(?:-[0-9]{1,5})?"
_NUMBER = r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?:Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE][+-]?[0-9]{1,3})?"
_SHARE = r"(?:100|[0-9]{1,2}(?:\.[0-9]{1,9})?)%"
_QUANTITY = {"maxLength": 64, "minimum": 0, "pattern": f"^{_NUMBER}$", "type": ["string", "number"]}
_THRESHOLD = {"maxLength": 64, "pattern": f"^(?:{_SHARE}|{_NUMBER})$", "type": "string"}
YES_OR_NO = {
    "maximum": 1, "minimum": 0, "pattern": "^(?:1|t|T|true|True|TRUE|0|f|F|false|False|FALSE)$",
    "type": ["string", "boolean", "integer"],
}  # fmt: skip
"""Schema of an option that Go reads as a boolean."""
WHOLE = {"minimum": 0, "pattern": "^[+]?[0-9]{1,9}$", "type": ["string", "integer"]}
"""Schema of an option that is a whole number."""
_LABEL = LABEL.pattern

SECONDS = checked(
    _duration, _show_seconds, description="A duration such as 90s, 10m or 1h30m.", maxLength=32,
    pattern=f"^{_DURATION.pattern}$", type="string",
)  # fmt: skip
PERIOD = checked(
    _go_duration, _show_seconds, maxLength=32, type="string",
    pattern=r"^[+-]?(?:0|(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)$",
)  # fmt: skip
CPU_LIST = checked(
    _cpu_list, str, description='CPUs in the list format: "0-1,8".', pattern=f"^(?:{_RANGE}(?:,{_RANGE})*)?$",
    type="string",
)  # fmt: skip
RESERVATION = checked(_reservation, _show_amounts, type="object", **closed(dict.fromkeys(_RESERVABLE, _QUANTITY)))
NODE_LIMITS = checked(
    _limits, _show_amounts, type="object", **closed(dict.fromkeys(("memory", _PAGES.pattern), _QUANTITY))
)
THRESHOLDS = checked(
    _thresholds, dict, description="Signal to quantity or percentage.", type="object",
    **closed(dict.fromkeys(_SIGNALS, _THRESHOLD)),
)  # fmt: skip
OPTIONS = checked(_options, dict, type="object")
EXCLUSIVE_SELECTION = checked(
    _exclusive, str, maxLength=LONGEST_LIST, pattern=f"^(?:auto(?:, ?-{_LABEL})*|{_LABEL}(?:, ?{_LABEL})*)$",
    type="string",
)  # fmt: skip
IP_ADDRESS = checked(_ip_address, str, pattern="^[0-9A-Fa-f:.]{2,45}$", type="string")
HOST_NAME = checked(
    _host_name,
    str,
    description="A host name or address, without a port.",
    pattern=f"^{_HOST.pattern}$",
    type="string",
)
RESOURCE = checked(
    _resource, str, maxLength=LONGEST_RESOURCE, pattern=r"^[^/\s]*\.[^/\s]*/[^/\s]+$", type="string",
    **{"not": {"pattern": r"^(?:[^/]*\.)?kubernetes\.io/"}},
)  # fmt: skip
NAMESPACE = text(_LABEL, "A namespace's name.")
TAKER = text(rf"(?:\*|{_LABEL})", "A namespace's name, or *.")
EXCLUSIVE_COUNT = whole(0, MAX_ID + 1)
POD_PATTERN = text(r"[a-z0-9*?.-]{1,253}/[a-z0-9*?.-]{1,253}", "namespace/name, * and ? allowed.")
HEX4 = text(r"(?:[0-9a-f]{4})?")
ATTRIBUTE = text(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}")
PCI_ADDRESS_TEXT = text(PCI_ADDRESS.pattern)
