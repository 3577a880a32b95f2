"""A scenario for `numalign simulate`: what happens after the first pods came, in order.

events:
  - add: more/training.yaml        # pods appear; a path beside this file
  - end: default/train-*           # pods end: namespace/name, * and ? allowed
  - pass: 600                      # seconds; those that wait too long are refused
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path

from agent.errors import BadDocumentError, MalformedError
from agent.forecast.simulation import Add, End, Event, Pass
from agent.host import bounded
from agent.host.documents import load_all
from agent.host.workloads import read_workloads
from agent.model.fields import Field, show

LARGEST = 1 << 20
MOST_EVENTS = 10_000
MOST_SECONDS = 10**9
WORDS = ("add", "end", "pass")


def read_scenario(path: Path, known: Collection[str] = ()) -> tuple[tuple[Event, ...], list[str]]:
    """Read a scenario.

    Args:
        path: the file.
        known: namespace/name of the pods that are there at its beginning.

    Returns:
        Its events, and what is wrong, one sentence each.
    """
    try:
        data = bounded.read(path, LARGEST + 1)
        if len(data) > LARGEST:
            return (), [f"{path}: is larger than {LARGEST} bytes; a scenario is a list of events"]
        found = load_all(data, values=20 * MOST_EVENTS, documents=1)
        body = Field(found[0] if found else None, "")
    except OSError as error:
        return (), [f"{path}: cannot be read: {error.strerror}; name a scenario file"]
    except BadDocumentError as error:
        return (), [f"{path}: {error}; correct it"]
    there, events, wrong = set(known), list[Event](), list[str]()
    try:
        fields = list(_events(body))
    except MalformedError as error:
        return (), [f"{path}: {error}"]
    for each in fields:
        try:
            events.append(_event(each, path.parent, there, wrong))
        except MalformedError as error:
            wrong.append(f"{path}: {error}")
    return tuple(events), wrong


def _events(body: Field) -> list[Field]:
    for key in body.mapping() if body else ():
        if key != "events":
            raise body.get(key).wrong("is no key of a scenario, which has events only")
    events = body.get("events")
    if not events:
        raise events.wrong("is missing; write a list of add, end and pass")
    return list(events.items(MOST_EVENTS))


def _event(each: Field, folder: Path, there: set[str], wrong: list[str]) -> Event:
    found = each.mapping()
    if len(found) != 1 or next(iter(found)) not in WORDS:
        raise each.wrong(f"must be one of {', '.join(WORDS)}, like - end: default/train-*")
    word = next(iter(found))
    field = each.get(word)
    if word == "pass":
        return Pass(_seconds(field))
    if word == "end":
        pattern = field.text()
        if not any(fnmatchcase(key, pattern) for key in there):
            raise field.wrong(f"{show(pattern)} names none of the pods that are there by then; write namespace/name")
        return End(pattern)
    read = read_workloads([folder / field.text()])
    wrong += map(str, read.wrong)
    for item in read.items:
        if item.pod.key in there:
            raise field.wrong(f"pod {item.pod.key} is there already; give it another name")
        there.add(item.pod.key)
    return Add(read.items)


def _seconds(field: Field) -> float:
    value = field.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_SECONDS:
        raise field.wrong(f"must be seconds from 0 to {MOST_SECONDS}, not {show(value)}")
    return float(value)
