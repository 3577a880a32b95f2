"""The contract tests (tests/contract) on real kernels: a guest for each of `kernels.RUNS`, with this Python in it.

What each answers to `operations` is kept in kernels.json, and is the table of the page on the kernel.
"""

from __future__ import annotations

import io
import json
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs import pages
from tests.guests import kernels, python
from tests.guests.boot import GuestError, boot
from tests.guests.shapes import Shape

FILE = Path(__file__).with_name("kernels.json")
PAGE = python.CHECKOUT / "deploy/docs/kernel.md"
SILENT = 240.0
"""Seconds without a word that a guest may take: Python starts slowly on an emulated processor."""
MACHINE = ("-machine", "q35", "-smp", "2", "-m", "1G")
_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev; mount -t tmpfs tmpfs /tmp
exec >/dev/ttyS0 2>&1 </dev/null
if [ {version} = 2 ]; then
  mount -t cgroup2 none /sys/fs/cgroup
  echo +cpuset +cpu +memory >/sys/fs/cgroup/cgroup.subtree_control
else
  mount -t tmpfs none /sys/fs/cgroup
  for name in cpuset cpu memory; do
    mkdir /sys/fs/cgroup/$name; mount -t cgroup -o $name none /sys/fs/cgroup/$name
  done
fi
ip link set lo up
export PYTHONPATH={place}:{site} HOME=/tmp PATH=/bin PYTHONDONTWRITEBYTECODE=1
cd {place}
{python} -m tests.guests.operations {version} >/tmp/operations.json
{python} -m pytest -p no:cacheprovider -o addopts= --import-mode=importlib --confcutdir=tests/contract -v \\
  --junitxml=/tmp/tests.xml -k "real-v{version}" {tests}
tar -C /tmp -czf /out.tgz operations.json tests.xml
stty -F /dev/ttyS1 raw
cat /out.tgz >/dev/ttyS1
echo "numalign: sent $(sha256sum /out.tgz | cut -d' ' -f1)"
sleep 1
reboot -f
"""


@dataclass(frozen=True)
class Ran:
    """What a guest said.

    Attributes:
        release: the kernel's version, as Debian has it.
        passed, skipped: how many tests.
        failed: a sentence for each.
        operations: what it answered to each.
        seconds: from its start to its end.
    """

    release: str
    passed: int
    skipped: int
    failed: tuple[str, ...]
    operations: Mapping[str, str]
    seconds: float


def run(image: Path, version: int, tests: str = "tests/contract") -> Ran:
    """Boot a kernel with one version of cgroups, and run all of it; raises MissingError and GuestError."""
    init = _INIT.format(
        version=version, place=python.PLACE, site=python.SITE, python=python.interpreter(), tests=tests
    )
    shape = Shape(f"{image.name} v{version}", "the contract tests", MACHINE)
    sent = boot(shape, image=image, initrd=python.archive(init.encode()), still=SILENT, single=True)
    with tarfile.open(fileobj=io.BytesIO(sent.archive)) as tar:
        told = {each.name: file.read() for each in tar if (file := tar.extractfile(each))}
    if not told.get("operations.json") or "tests.xml" not in told:
        raise GuestError(f"{shape.name}: the tests did not run to their end")
    cases = list(ET.fromstring(told["tests.xml"]).iter("testcase"))  # noqa: S314 - of our own guest
    failed = tuple(
        f"{each.get('name')}: {(wrong.get('message') or '').splitlines()[:1]}"
        for each in cases
        for wrong in (*each.findall("failure"), *each.findall("error"))
    )
    skipped = sum(each.find("skipped") is not None for each in cases)
    return Ran(
        kernels.release(image), len(cases) - skipped - len(failed), skipped, failed,
        json.loads(told["operations.json"]), sent.seconds,
    )  # fmt: skip


def remember(name: str, version: int, ran: Ran) -> None:
    """Keep what was said, and write the page's table again."""
    known = recorded()
    known[f"{name} v{version}"] = {
        "release": ran.release, "passed": ran.passed, "failed": len(ran.failed), "operations": dict(ran.operations),
    }  # fmt: skip
    order = {f"{each} v{number}": place for place, (each, number) in enumerate(kernels.RUNS)}
    ordered = dict(sorted(known.items(), key=lambda item: order.get(item[0], len(order))))
    FILE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


def recorded() -> dict[str, dict[str, Any]]:
    """What was said by each kernel when it was run last."""
    return json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def page(text: str) -> str:
    """The page with its table made again: a row for each operation, a column for each kernel."""
    known = recorded()
    heads = [f"{each['release'].partition('-')[0]}, {name.rpartition(' ')[2]}" for name, each in known.items()]
    rows = [["Operation", *heads], ["---"] * (len(heads) + 1)]
    operations = next(iter(known.values()))["operations"] if known else ()
    rows += [[words, *(each["operations"].get(words, "–") for each in known.values())] for words in operations]
    return pages.remade(text, "kernels", "".join(f"| {' | '.join(row)} |\n" for row in rows))
