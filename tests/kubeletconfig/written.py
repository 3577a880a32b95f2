"""Other ways to write the same lines: documents, JSON, blocks, directives, and texts that are no YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import yaml

from tests.kubeletconfig.draw import Draw

HEAD = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration"]
Lines = list[str]


def documents(draw: Draw, lines: Lines) -> Lines:
    """Marks of documents, and more than one."""
    return draw.one((
        ["---", *lines], [*lines, "---"], ["---", *lines, "---"], [*lines, "..."], [*lines, "---", "foo: bar"],
        [*lines, "---", "{{["], ["---", "---", *lines], [*lines, "---", *lines], ["# a comment", "", "---", *lines],
        ["apiVersion: kubeadm.k8s.io/v1beta4", "kind: ClusterConfiguration", "---", *lines],
        [*lines, "---", "", "---"], [*lines, "---", "null"], ["--- # here", *lines], ["--- !!map", *lines],
    ))  # fmt: skip


def as_json(draw: Draw, lines: Lines) -> Lines:
    """JSON, some of it not quite."""
    try:
        found = yaml.safe_load("\n".join(lines))
        text = json.dumps(found, indent=draw.one((None, 2)), ensure_ascii=draw.chance(0.5))
    except (yaml.YAMLError, ValueError, TypeError):
        return lines
    return draw.one((
        [text], [text], [" " + text], ["\n" + text], [text + "\n---"], [text[:-1] + ',"kubeReserved":{"cpu":"2"}}'],
        [text[:-1] + ",}"], ["---", text], [text + "x"], [text, text], [text.replace('"', "'")],
    ))  # fmt: skip


def marked(draw: Draw, lines: Lines) -> Lines:
    """Line ends, marks, directives and comments."""
    at = draw.random.randrange(2, len(lines) + 1)
    return draw.one((
        [f"{line}\r" for line in lines], ["\ufeff" + lines[0], *lines[1:]], ["%YAML 1.1", "---", *lines],
        ["%YAML 1.2", "---", *lines], ["%TAG ! tag:example.com,2000:", "---", *lines], ["%FOO bar", "---", *lines],
        [*lines[:at], "", "# text: value", *lines[at:]], [f" {line}" for line in lines], ["!!map", *lines],
        [line + "  # why" for line in lines], ["{" + ", ".join(lines) + "}"],
        [line.replace(": ", " : ", 1) for line in lines], [line.replace("{", "{ ") for line in lines],
        [f'"{line.partition(":")[0]}":{line.partition(":")[2]}' for line in lines],
    ))  # fmt: skip


def inserted(draw: Draw, lines: Lines) -> Lines:
    """A line that does not belong there."""
    at = draw.random.randrange(2, len(lines) + 1)
    more = draw.one((
        ["\t"], ["  oddly: indented"], ["just text"], ["1: 2"], ["true: 2"], ["null: 2"], ["? [a]", ": b"],
        ["a: \u0000b"], ["a: \u0085b"], ["a: *unknown"], ["a: 'open"], ["a: [1, 2"], ["a: b: c"], ["a: @b"],
        ["a: \U0001f600"], ["a: \ud800".encode("utf-8", "replace").decode()], ["2001-01-01: 2"], ["1.5: 2"],
    ))  # fmt: skip
    return [*lines[:at], *more, *lines[at:]]


def blocks(draw: Draw, lines: Lines) -> Lines:
    """Values over several lines, as tools write them."""
    try:
        text = str(yaml.safe_dump(yaml.safe_load("\n".join(lines)), sort_keys=draw.chance(0.5)))
    except (yaml.YAMLError, ValueError, TypeError):
        return lines
    return text.splitlines()


def scalars(draw: Draw, lines: Lines) -> Lines:
    """CPU lists as block scalars."""
    style = draw.one(("|", ">-", ">", "|-", "|+"))
    return [
        f"{name}: {style}\n  {value.strip(chr(34))}" if name == "reservedSystemCPUs" and value[:1] == '"' else line
        for line in lines
        for name, _, value in [line.partition(": ")]
    ]


def little(draw: Draw, lines: Lines) -> Lines:
    """Nearly nothing, or no head."""
    return draw.one((
        [""], ["# only a comment"], ["{}"], ["[]"], ["null"], ["text"], ["---"], [*HEAD], ["..."], ["42"], ["true"],
        ["[" + ", ".join(HEAD) + "]"], lines[1:], lines[:1] + lines[2:], lines[2:], ["- a"],
    ))  # fmt: skip


WRITTEN: Sequence[Callable[[Draw, Lines], Lines]] = (
    documents, as_json, as_json, marked, inserted, blocks, blocks, scalars, little,
)  # fmt: skip
