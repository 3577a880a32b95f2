"""`python -m tests.guests`: list the shapes, record them, or run the contract tests on several kernels."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from agent.errors import NumalignError
from agent.host.archives import open_root
from agent.host.record import check, record
from agent.model.machine import PCI_ADDRESS
from tests.guests import contract, kernels
from tests.guests.boot import GuestError, Sent, boot
from tests.guests.kernels import kernel
from tests.guests.needs import QEMU, initramfs
from tests.guests.shapes import BY_NAME, SHAPES, Shape
from tests.guests.truth import KIB, truth
from tests.programs import MissingError, need

PLACE = Path(__file__).resolve().parents[1] / "replay" / "machines"
HEADER = 64
"""Bytes of a configuration space that everybody may read."""
_CONFIG = re.compile(r"guest/sys/devices/pci[^/]+/(?:[^/]+/)*" + PCI_ADDRESS.pattern + "/config")


def main() -> int:
    """Exit code 0: done; 1: a guest failed; 2: wrong arguments; 3: something is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.guests", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the shapes")
    recording = commands.add_parser("record", help="boot guests and record them")
    recording.add_argument("shape", nargs="*", help="all of them without any")
    asking = commands.add_parser("contract", help="the contract tests on Debian's kernels, and the page's table")
    asking.add_argument("kernel", nargs="*", help=f"of {', '.join(kernels.SUITES)}; all of them without any")
    asking.add_argument("--kept", action="store_true", help="download nothing: those that were fetched before")
    asked = parser.parse_args()
    if asked.command == "list":
        for shape in SHAPES:
            print(f"{shape.name:<20} {shape.why}")
        return 0
    if asked.command == "contract":
        unknown = [name for name in asked.kernel if name not in kernels.SUITES]
        if unknown:
            asking.error(f"no such kernel: {', '.join(unknown)}; there are {', '.join(kernels.SUITES)}")
        return _contract(asked.kernel or list(kernels.SUITES), kept=asked.kept)
    unknown = [name for name in asked.shape if name not in BY_NAME]
    if unknown:
        recording.error(f"no such shape: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    return _record([BY_NAME[name] for name in asked.shape] or list(SHAPES))


def _record(shapes: list[Shape]) -> int:
    try:
        qemu, image = need(QEMU), kernel()
        initramfs()
    except MissingError as error:
        print(f"cannot record: {error}", file=sys.stderr)
        return 3
    print(f"{qemu}, kernel {image.name}; {len(shapes)} guests, recordings go to {PLACE}")
    failed = 0
    for number, shape in enumerate(shapes, 1):
        print(f"[{number}/{len(shapes)}] {shape.name}: {shape.why} ... ", end="", flush=True)
        try:
            sent = boot(shape)
            size = keep(shape, sent)
        except (GuestError, MissingError, NumalignError) as error:
            print(f"FAILED\n{error}")
            failed += 1
        else:
            print(f"{sent.seconds:.1f} s, {len(sent.archive)} bytes sent, {size} kept")
    return 1 if failed else 0


def _contract(names: list[str], *, kept: bool) -> int:
    failed = 0
    for name, version in kernels.RUNS:
        if name not in names:
            continue
        print(f"{name}, cgroup v{version} ... ", end="", flush=True)
        try:
            image = kernels.newest_kept(name) if kept else kernels.fetch(name)
            ran = contract.run(image, version)
        except (GuestError, MissingError) as error:
            print(f"DID NOT RUN: {error}")
            failed = max(failed, 1 if isinstance(error, GuestError) else 3)
            continue
        contract.remember(name, version, ran)
        print(
            f"{ran.release}: {ran.passed} passed, {ran.skipped} skipped, {len(ran.failed)} failed, {ran.seconds:.0f}s"
        )
        print(*(f"  FAILED {each}" for each in ran.failed), sep="\n", end="\n" if ran.failed else "")
        failed = failed or int(bool(ran.failed))
    return failed


def keep(shape: Shape, sent: Sent) -> int:
    """Write a guest's recording and its facts; returns the bytes kept."""
    PLACE.mkdir(parents=True, exist_ok=True)
    archive, facts = PLACE / f"{shape.name}.tar.xz", PLACE / f"{shape.name}.json"
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
        file.write(sent.archive)
        file.flush()
        with open_root(file.name) as files:
            made = record(files, shape.name, live=False)
    archive.write_bytes(made.archive)
    check(str(archive), made.machine)
    told = {
        "shape": shape.why,
        "qemu": list(sent.command),
        "facts": truth(sent.command),
        "memory_bytes": _memory(sent.archive),
        "config": _config(sent.archive),
    }
    facts.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return archive.stat().st_size + facts.stat().st_size


def _memory(archive: bytes) -> dict[str, int]:
    """MemTotal of each node as the guest's shell read it."""
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        file = tar.extractfile("guest/memory")
        lines = file.read().decode().splitlines() if file else []
    return {node: int(kilobytes) * KIB for node, kilobytes in (line.split() for line in lines)}


def _config(archive: bytes) -> dict[str, str]:
    """The header of each PCI function's configuration space, as hexadecimal digits, by address.

    Discovery does not read it, so no recording has it; hwloc learns from it which buses a bridge leads to.
    """
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        files = {each.name.split("/")[-2]: tar.extractfile(each) for each in tar if _CONFIG.fullmatch(each.name)}
        return {address: file.read(HEADER).hex() for address, file in sorted(files.items()) if file}


if __name__ == "__main__":
    sys.exit(main())
