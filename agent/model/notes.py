"""Of a pod's annotations what is worth keeping: those that mean something, and never more than a few hundred bytes.

Anybody may write 256 KiB of annotations on a pod of his own. What is kept of them goes into memory, the ledger and
the checkpoint, log lines, Events and the page, so it is cut here, where it is read: a value that is too long to mean
anything is kept as its beginning, just long enough to be told from a good one (`agent.core.request.annotations`); of
names that mean nothing the first few are kept, without their values, and how many more there are. A name whose domain
is a slip of the pen away from ours (numalgin.io/policy) means nothing, too.

Called wherever annotations come in: pods, namespaces, manifests, and a checkpoint that an older version wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.model.fields import Field, mapping_of, show
from agent.model.likely import MOST_SLIPS, is_slip

PREFIX = "numalign.io/"
"""Of the annotations, only ours are kept: the rest is other people's data."""
WORDS = frozenset(
    f"{PREFIX}{name}" for name in ("policy", "scope", "on-misalignment", "align", "pin", "move-memory",
                                   "isolated-cpus", "memory-policy", "gate", "release", "released",
                                   "tolerate-missing-plugin")
)  # fmt: skip
"""Annotations that are a word or two."""
LISTS = frozenset({f"{PREFIX}cpu-options", f"{PREFIX}devices", f"{PREFIX}exclusive", f"{PREFIX}mixed"})
"""Annotations that are lists."""
OURS = frozenset({f"{PREFIX}assignment", f"{PREFIX}cpus", f"{PREFIX}numa-nodes", f"{PREFIX}failed"})
"""What the agent itself writes: no wish, and as long as what it tells of; never kept."""

MOST_TO_TOUCH = 5000
"""Annotations of a pod, ours among them, beyond which it is not written to: each write costs the API server more than
their number says. The admission policy has the same number."""
LONGEST_WORD, LONGEST_LIST = 100, 500
"""Characters of a value that is read."""
MOST_UNKNOWN = 5
"""Names that mean nothing, of which each is told."""
LONGEST_NAME = 80
MOST_DOMAINS = 200
"""Domains of other people's annotations, of a length like ours, that are compared with ours."""
MORE = PREFIX
"""Where the number of further names stands: no annotation of the API has an empty name."""


def too_many(annotations: Mapping[str, object]) -> bool:
    """Whether a pod with these annotations and ours would have more than the API server can be asked to look at."""
    return len(annotations) + len(OURS) > MOST_TO_TOUCH and len(annotations.keys() | OURS) > MOST_TO_TOUCH


def longest(name: str) -> int:
    """Characters that the value of an annotation may have."""
    return LONGEST_LIST if name in LISTS else LONGEST_WORD


def bounded(annotations: Mapping[str, str]) -> dict[str, str]:
    """What is kept, sorted by name; the same again when given its own answer."""
    found = {
        name: _printable(annotations[name][: longest(name) + 1])
        for name in sorted(WORDS | LISTS)
        if name in annotations
    }
    unknown = sorted(
        name for name in annotations if name.startswith(PREFIX) and name not in WORDS | LISTS | OURS and name != MORE
    ) + misspelt(annotations)
    found |= {_printable(name[:LONGEST_NAME]): "" for name in unknown[:MOST_UNKNOWN]}
    more = max(0, len(unknown) - MOST_UNKNOWN) + _number(annotations.get(MORE, ""))
    return dict(sorted({**found, **({MORE: str(more)} if more else {})}.items()))


def misspelt(names: Iterable[str]) -> list[str]:
    """Names of annotations whose domain is almost ours, sorted; of very many domains the first are looked at."""
    found, compared, ours = list[str](), 0, PREFIX[:-1]
    for name in names:
        domain, slash, _ = name.partition("/")
        if not slash or domain == ours or abs(len(domain) - len(ours)) > MOST_SLIPS:
            continue
        compared += 1
        if compared > MOST_DOMAINS:
            break
        if is_slip(domain, ours):
            found.append(name)
    return sorted(found)


def bounded_texts(annotations: object) -> dict[str, str]:
    """What is kept of annotations of which nothing is refused: what is no text counts as absent."""
    return bounded({name: text for name, text in mapping_of(annotations).items() if isinstance(text, str)})


def read(field: Field) -> dict[str, str]:
    """What is kept of the annotations that a document has; raises the field's fault where ours is no text."""
    ours: dict[str, str] = {}
    found = field.mapping() if field else {}
    slips = {*misspelt(found)}
    for name, value in found.items():
        if name in slips:
            ours[name] = ""
        if name.startswith(PREFIX):
            if not isinstance(value, str):
                step = f".{name[:LONGEST_NAME]}"
                raise field.at(value, step).wrong(f"must be a text, not {show(value)}; put it in quotes")
            ours[name] = value
    return bounded(ours)


def _printable(text: str) -> str:
    """One line of plain letters: no good value has others, and some of them take six bytes in JSON."""
    return "".join(letter if " " <= letter <= "~" and letter not in '"\\' else "?" for letter in text)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len("999999") else 0
