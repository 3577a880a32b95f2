"""A sequence as a file's text, with the expectations that somebody's answers make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from tests.referee.running import Admitted, Refused, Seen
from tests.referee.sequence import Resources, Sequence, Step

WIDE = 116


def text_of(sequence: Sequence, trace: Iterable[Seen]) -> str:
    """The file of a sequence in which every step expects what it brought in a trace.

    Quotas and parts of messages stay as the sequence has them.
    """
    lines = [f"about: {sequence.about}"]
    for key in ("machine", "config", "kubelet", "devices", "tags"):
        value = getattr(sequence, key)
        if value and value != Sequence.model_fields[key].default:
            lines.append(f"{key}: {_flow(list(value) if isinstance(value, tuple) else value)}")
    lines.append("steps:")
    for step, seen in zip(sequence.steps, trace, strict=True):
        lines += _step(step, seen)
    return "\n".join(lines) + "\n"


def _step(step: Step, seen: Seen) -> Iterator[str]:
    act, name = step.act.split(" ")
    yield f"  - {act}: {name}"
    if step.resources is not None:
        yield f"    resources: {_flow(_short(step.resources))}"
    for key, part in (("init", step.init), ("containers", step.containers)):
        yield from _containers(key, part)
    if isinstance(seen.outcome, Refused):
        yield f"    refused: {seen.outcome.reason}"
        if step.says:
            yield f"    says: {_flow(step.says)}"
    elif isinstance(seen.outcome, Admitted):
        yield "    expect:"
        for name, has in seen.outcome.containers.items():
            expected = (step.expect or {}).get(name)
            quota = {"quota": _plain(expected.quota)} if expected and expected.quota else {}
            yield f"      {name}: {_flow({'cpus': _plain(has.cpus), 'mems': _plain(has.mems), **quota})}"
        if step.pod_quota:
            yield f"    pod quota: {step.pod_quota}"
    yield f"    shared: {seen.shared or _flow('')}"


def _containers(key: str, part: Mapping[str, Resources]) -> Iterator[str]:
    bodies = {name: _short(each) for name, each in part.items()}
    line = f"    {key}: {_flow(bodies)}"
    if bodies and len(line) <= WIDE:
        yield line
    elif bodies:
        yield f"    {key}:"
        yield from (f"      {name}: {_flow(body)}" for name, body in bodies.items())


def _short(resources: Resources) -> dict[str, Any]:
    if resources.requests == resources.limits:
        body: dict[str, Any] = {key: _plain(value) for key, value in resources.limits.items()}
    else:
        parts = resources.body().items()
        body = {part: {key: _plain(value) for key, value in amounts.items()} for part, amounts in parts}
    return {**body, "sidecar": True} if resources.sidecar else body


def _plain(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("...\n").strip()
