"""The Go oracle (the kubelet's own managers behind a command line): built once, kept outside the work tree.

Its source lies in the reference folder (tests/reference.py) and is not part of a clone: whoever needs it
asks `oracle()` and says why it does without when NoOracleError is raised. Used by benchmarks and differential tests.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests import peers
from tests.peers import PeerMissingError, compiled, making
from tests.reference import ORACLE


class NoOracleError(Exception):
    """It cannot be had here; the text says why, in a sentence."""


OLDEST = 36
"""The minor whose module versions stand in go.mod itself."""
EDGES, EDGES_38 = "--edges", "--edges38"
TOOLCHAINS = {38: "go1.27.4"}
"""What a minor's modules need beyond the Go of this machine."""


def oracle(source: Path = ORACLE, cache: Path = peers.CACHE.parent, *, minor: int = OLDEST) -> Path:
    """The path of the program over kubelet 1.`minor`, built if the cache has none of this content.

    Raises:
        NoOracleError: there is no source, no Go, or the build failed.
    """
    if not (source / "go.mod").is_file():
        raise NoOracleError(f"there is no oracle source in {source} (NUMALIGN_REFERENCE)")
    program = cache / "oracle" / digest(source) / ("oracle" if minor == OLDEST else f"oracle-1.{minor}")
    of_minor = [] if minor == OLDEST else [f"-modfile=go-1.{minor}.mod", "-tags", f"kubelet1{minor}"]
    toolchain = {"GOTOOLCHAIN": TOOLCHAINS[minor]} if minor in TOOLCHAINS else {}
    try:
        with making(program) as part:
            if part:
                compiled("the oracle", "build", *of_minor, "-o", part, ".", cwd=source, **toolchain)
    except PeerMissingError as error:
        raise NoOracleError(str(error)) from error
    return program


def digest(source: Path) -> str:
    """Sixteen hex digits over everything that the build reads."""
    return peers.digest(path for path in source.iterdir() if path.suffix in {".go", ".s", ".mod", ".sum"})


def generate(
    program: Path, family: str, seed: int, count: int, repeats: int = 0, *, edges: str = ""
) -> list[dict[str, Any]]:
    """Vectors that nobody has seen before; what the kubelet answers in two ways in `repeats` runs is dropped.

    `edges`: EDGES for machines that are rare, as where nodes and sockets cross-cut, EDGES_38 for what 1.38 answers by
    rules of its own.
    """
    command = [str(program), "gen", "--family", family, "--seed", str(seed), "--count", str(count)]
    command += ["--repeats", str(repeats)] if repeats else []
    command += [edges] if edges else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def answer(program: Path, vectors: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The vectors with the kubelet's answers as `expected`."""
    text = "".join(json.dumps(vector) + "\n" for vector in vectors)
    done = subprocess.run([str(program), "answer"], input=text, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def bench(program: Path, *, sizes: bool = False) -> Iterator[dict[str, Any]]:
    """Measure the kubelet, one result after the other; the program ends with the reader.

    `sizes`: merges and whole admissions of 2 to 8 nodes, with and without a preferred hint.
    """
    command = [str(program), "bench", *(["--sizes"] if sizes else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            for line in running.stdout or ():
                yield json.loads(line)
        finally:
            running.kill()
