"""The kinds of values that settings have, each with its check: a sentence that says what is wrong and what to write.

Used by `agent.settings.model` alone. The checks raise ValueError; `agent.settings.parsing` puts the key before it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, StrictInt, WithJsonSchema

from agent.errors import MalformedError
from agent.model.exclusive import ALLOWED, Selection, parsed
from agent.model.fields import LABEL
from agent.model.go import parse_duration
from agent.model.idset import MAX_ID, CpuSet
from agent.model.machine import PCI_ADDRESS
from agent.model.notes import LONGEST_LIST
from agent.model.quantity import Amount, nano_of

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", re.ASCII)
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}
RECONCILE_PERIOD = 10.0
"""Seconds of cpuManagerReconcilePeriod where it is unset."""
LONGEST = 366 * 86400.0
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
    """What pydantic collects and puts the key before; it lets a TypeError through as a traceback."""
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


def _amounts(value: object, what: str, names: tuple[str, ...] | None) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _unfit(f"must be a mapping of {what} to quantities, such as {{memory: 1Gi}}")
    found: dict[str, int] = {}
    for name, text in value.items():
        if names and name not in names:
            raise _unfit(f"{_shown(name)} cannot be reserved; possible are {', '.join(names)}")
        if text is None or text == "":
            raise _unfit(f"{name}: has no value; write a quantity like {_LIKE.get(name, '1Gi')}, or remove the line")
        try:
            found[str(name)] = Amount.parse(text)
        except MalformedError as error:
            raise _unfit(f"{name}: {error}") from None
        if found[str(name)] < 0:
            raise _unfit(f"{name}: {_shown(text)} is negative; write zero or more")
    return found


def _reservation(value: object) -> dict[str, int]:
    return _amounts(value, "resources", _RESERVABLE)


def _limits(value: object) -> dict[str, int]:
    found = _amounts(value, "memory and hugepages-<size>", None)
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
    for name, text in value.items():
        if name not in _SIGNALS:
            raise _unfit(f"{_shown(name)} is no eviction signal; known are {', '.join(sorted(_SIGNALS))}")
        if not isinstance(text, str) or not text:
            raise _unfit(f'{name}: {_shown(text)} is not a threshold; write it in quotes, like "100Mi" or "5%"')
        if text.endswith("%"):
            if not _PERCENT.fullmatch(text) or float(text[:-1]) > 100:  # noqa: PLR2004 - percent
                raise _unfit(f'{name}: {_shown(text)} is no percentage between "0%" and "100%"')
        elif not any(_amounts({name: text}, "signals", None).values()):
            raise _unfit(f'{name}: {_shown(text)} is not positive; write "0%" to switch the threshold off')
        found[name] = text
    return found


def _options(value: object) -> dict[str, str]:
    """KubeletConfiguration has texts here; YAML's true and 8 mean the same and are taken too."""
    if not isinstance(value, Mapping):
        raise _unfit('must be a mapping of options to texts, such as {full-pcpus-only: "true"}')
    found: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str | bool | int) or _enormous(text):
            raise _unfit(f'{_shown(name)}: {_shown(text)} is not an option\'s value; write "true" or "false"')
        found[name] = str(text).lower() if isinstance(text, bool) else str(text)
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


def _schema(kind: str, text: str, **more: Any) -> WithJsonSchema:  # noqa: ANN401 - JSON schema is any JSON
    return WithJsonSchema({"type": kind, "description": text, **more})


def closed(names: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a schema that lets these names through and no other: name or pattern -> schema of its value.

    Not by `propertyNames`: Helm then shows a wrong key under the path of another value.
    """
    patterns = {f"^{name.replace('.', '[.]')}$": kind for name, kind in names.items()}
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
_QUANTITY = {"type": ["string", "number"], "pattern": f"^{_NUMBER}$", "maxLength": 64, "minimum": 0}
_THRESHOLD = {"type": "string", "pattern": f"^(?:{_SHARE}|{_NUMBER})$", "maxLength": 64}
YES_OR_NO = {
    "type": ["string", "boolean", "integer"], "minimum": 0, "maximum": 1,
    "pattern": "^(?:1|t|T|true|True|TRUE|0|f|F|false|False|FALSE)$",
}  # fmt: skip
"""Schema of an option that Go reads as a boolean."""
WHOLE = {"type": ["string", "integer"], "pattern": "^[+]?[0-9]{1,9}$", "minimum": 0}
"""Schema of an option that is a whole number."""
_LABEL = LABEL.pattern
_AMOUNTS_SHOWN = PlainSerializer(_show_amounts)

Seconds = Annotated[
    float,
    PlainValidator(_duration),
    PlainSerializer(_show_seconds),
    _schema("string", "A duration such as 90s, 10m or 1h30m.", pattern=f"^{_DURATION.pattern}$", maxLength=32),
]
Period = Annotated[
    float,
    PlainValidator(_go_duration),
    PlainSerializer(_show_seconds),
    _schema(
        "string", "A duration as Go writes it; 0 is unset.", maxLength=32,
        pattern=r"^[+-]?(?:0|(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)$",
    ),
]  # fmt: skip
CpuList = Annotated[
    CpuSet,
    PlainValidator(_cpu_list),
    PlainSerializer(str),
    _schema("string", 'CPUs in the list format: "0-1,8".', pattern=f"^(?:{_RANGE}(?:,{_RANGE})*)?$"),
]
Reservation = Annotated[
    dict[str, int],
    PlainValidator(_reservation),
    _AMOUNTS_SHOWN,
    _schema("object", "Resource to quantity.", **closed(dict.fromkeys(_RESERVABLE, _QUANTITY))),
]
NodeLimits = Annotated[
    dict[str, int],
    PlainValidator(_limits),
    _AMOUNTS_SHOWN,
    _schema(
        "object",
        "memory or hugepages-<size> to quantity.",
        **closed(dict.fromkeys(("memory", _PAGES.pattern), _QUANTITY)),
    ),
]
Thresholds = Annotated[
    dict[str, str],
    PlainValidator(_thresholds),
    _schema("object", "Signal to quantity or percentage.", **closed(dict.fromkeys(sorted(_SIGNALS), _THRESHOLD))),
]
Options = Annotated[
    dict[str, str],
    PlainValidator(_options),
    _schema("object", "Option to text.", additionalProperties={"type": ["string", "boolean", "integer"]}),
]
ExclusiveSelection = Annotated[
    Selection,
    PlainValidator(_exclusive),
    PlainSerializer(str),
    _schema(
        "string",
        f"{ALLOWED[0].upper()}{ALLOWED[1:]}.",
        pattern=f"^(?:auto(?:, ?-{_LABEL})*|{_LABEL}(?:, ?{_LABEL})*)$",
        maxLength=LONGEST_LIST,
    ),
]
IpAddress = Annotated[
    str, PlainValidator(_ip_address), _schema("string", "An IP address.", pattern="^[0-9A-Fa-f:.]{2,45}$")
]
HostName = Annotated[
    str,
    PlainValidator(_host_name),
    _schema("string", "A host name or address, without a port.", pattern=f"^{_HOST.pattern}$"),
]
Namespace = Annotated[str, Field(strict=True, pattern=rf"^{_LABEL}$", description="A namespace's name.")]
Taker = Annotated[str, Field(strict=True, pattern=rf"^(?:\*|{_LABEL})$", description="A namespace's name, or *.")]
ExclusiveCount = Annotated[StrictInt, Field(ge=0, le=MAX_ID + 1)]
PodPattern = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^[a-z0-9*?.-]{1,253}/[a-z0-9*?.-]{1,253}$",
        description="namespace/name, * and ? allowed.",
    ),
]
Hex4 = Annotated[str, Field(strict=True, pattern=r"^(?:[0-9a-f]{4})?$")]
Attribute = Annotated[
    str, Field(strict=True, pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}$")
]
PciAddress = Annotated[str, Field(strict=True, pattern=f"^{PCI_ADDRESS.pattern}$")]
