"""Modules that a release asks for and the proxy does not serve, made while it is built of what is served.

Kubernetes 1.38 has moved the types and clients of CustomResourceDefinitions into a module of their own, and the
kubelet's iptables out of its source. The first is cut from the last version of the module that had them: what has
changed since fails to compile. Of the second there is no iptables, which the kubelet expects on a node of nftables;
the rules that it would write are for other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.peers import tools

BEFORE, AT = "k8s.io/apiextensions-apiserver", "v0.38.0-alpha.2"
"""The module that had what MOVED has, and its last version."""
MOVED = "k8s.io/apiextensions-api"
PARTS = ("pkg/apis/apiextensions/v1", "pkg/apis/apiextensions/v1beta1", "pkg/client")
STAYED = {"conversion.go", "zz_generated.conversion.go"}
"""Files of PARTS that the module still has."""
NULL = 'nullLiteral = []byte("null")'
"""What a file that stayed gave to one that has moved."""
IPTABLES = "sigs.k8s.io/iptables-wrappers"
NO_IPTABLES = """// Package iptables finds none.
package iptables

import (
	"context"
	"time"
)

type (
	Table        string
	Chain        string
	Protocol     string
	RulePosition string
	Mode         string
)

const (
	UseInstalledMode Mode         = ""
	TableFilter      Table        = "filter"
	TableMangle      Table        = "mangle"
	TableNAT         Table        = "nat"
	ChainInput       Chain        = "INPUT"
	ChainOutput      Chain        = "OUTPUT"
	Append           RulePosition = "-A"
	Prepend          RulePosition = "-I"
)

type Interface interface {
	EnsureChain(context.Context, Table, Chain) (bool, error)
	EnsureRule(context.Context, RulePosition, Table, Chain, ...string) (bool, error)
	IsIPv6() bool
	Monitor(context.Context, Chain, []Table, func(), time.Duration)
	Protocol() Protocol
}

func NewBestEffort(context.Context, Mode) map[Protocol]Interface { return nil }
"""


def moved() -> dict[str, str]:
    """The files of MOVED, by their paths in it."""
    source = tools.module(BEFORE, AT)
    apis = {f"{part}/null.go": f"package {Path(part).name}\n\nvar {NULL}\n" for part in PARTS if "/apis/" in part}
    return apis | {
        path.relative_to(source).as_posix(): path.read_text("utf-8").replace(f'"{BEFORE}/', f'"{MOVED}/')
        for part in PARTS
        for path in source.joinpath(part).rglob("*.go")
        if path.name not in STAYED and not path.name.endswith("_test.go")
    }


MODULES: Mapping[str, Callable[[], Mapping[str, str]]] = {
    MOVED: moved, IPTABLES: lambda: {"pkg/iptables/iptables.go": NO_IPTABLES},
}  # fmt: skip
"""What makes the files of each."""


def folder(module: str) -> str:
    """Where the files of a module lie, beside a program's go.mod."""
    return f"./{Path(module).name}"


def files(module: str) -> dict[str, str]:
    """All of a module, by their paths beside a program's go.mod."""
    made = {"go.mod": f"module {module}\n\ngo 1.24.0\n", **MODULES[module]()}
    return {f"{Path(module).name}/{name}": text for name, text in made.items()}
