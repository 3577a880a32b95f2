"""Products that are broken on purpose: each must turn the lab's run red. `python -m tests.lab.broken KIND`.

The lab is started with the product as it is; then one file of it is replaced in the agent's pod, and the command that
CI runs, `python -m tests.lab run`, is run with the smallest test that must notice. At the end the product is whole.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.lab import agent, cluster, outcomes
from tests.lab.cluster import Lab
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.places import ROOT, RUN

EXAMPLES = """
examples:
  python -m tests.lab.broken dead                an agent that does not start
  python -m tests.lab.broken swapped --times 10  two passes of the plan in the wrong order, ten runs
  python -m tests.lab.broken all                 one after the other

The lab that runs is used and left running.

exit codes: 0 every run was red; 1 one was not; 2 wrong arguments; 3 the lab's own fault
"""
PLACE = "/opt/numalign/lib/python3.11/site-packages"
"""Where the image has the product (tools/image: Debian 12)."""
PYTHON = "cpython-311"
"""What its Python adds to the names of bytecode."""
GUEST = "/var/lib/numalign-broken"
GREEN, LAB_FAULT = 1, 3
AT_START = "numalign: "
"""How the command tells of a promise that was broken before the first test."""


@dataclass(frozen=True)
class Kind:
    """A product that is broken on purpose.

    Attributes:
        what: it does.
        file: of the product.
        changes: texts in it, and what stands there instead.
        test: that must notice.
        starts: whether its agent becomes Ready.
    """

    what: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str
    starts: bool = True


ALONE = "tests/lab/test_faults.py::test_alone"
KINDS = {
    "dead": Kind(
        "the agent ends as soon as it starts", "agent/cli/run.py",
        (("from __future__ import annotations\n", "raise SystemExit(1)\n"),),
        "tests/lab/test_first.py", starts=False,
    ),
    "mute": Kind(
        "nothing is written to any cgroup", "agent/host/cgroups/writing.py",
        (("            self.kernel.write(hierarchy, write.path, write.file, write.value)\n", "            pass\n"),),
        "tests/lab/test_first.py",
    ),
    "early": Kind(
        "CPUs of a pod that left the API are given back while its processes live on", "agent/engine/engine.py",
        (("if uid not in alive | later]", "if uid not in later]"),), f"{ALONE}[force-deleted]",
    ),
    "liar": Kind(
        "the annotation names CPUs that the pod does not have", "agent/kube/pod_report.py",
        (("CPUS: str(cpus) or None, NODES: str(nodes)", 'CPUS: "0-15" if cpus else None, NODES: str(nodes)'),),
        f"{ALONE}[daemon-reload]",
    ),
    "swapped": Kind(
        "exclusive sets are given before the others have left their CPUs", "agent/core/cgroups/plan.py",
        (("        self._shrink()\n        self.common", "        self.common"),
         ("        self._grant()\n", "        self._grant()\n        self._shrink()\n")),
        "tests/lab/test_order.py",
    ),
}  # fmt: skip


def changed(kind: Kind) -> str:
    """The file as it is in the broken product."""
    text = (ROOT / kind.file).read_text()
    for old, new in kind.changes:
        if text.count(old) != 1:
            raise LabError(f"{kind.file} has {text.count(old)} times what is to be changed: {old}")
        text = text.replace(old, new)
    return text


def break_(lab: Lab, node: Node, kind: Kind) -> None:
    """Put the broken product in place of the whole one."""
    agent.BROKEN.write_text(yaml.safe_dump(mounted(kind, node.put)))
    _replaced(lab, node)
    if kind.starts:
        agent.wait_ready(node)


def mounted(kind: Kind, put: Callable[[str, str], object]) -> dict[str, list[dict[str, object]]]:
    """Values of the chart that mount the broken file over the whole one, and an empty file over its bytecode.

    The image's bytecode is used without a look at its source (PEP 552, unchecked-hash): the broken source alone would
    change nothing. Bytecode that is empty is none, so that Python reads the source.
    """
    source = Path(kind.file)
    cached = source.parent / "__pycache__" / f"{source.stem}.{PYTHON}.pyc"
    volumes, mounts = list[dict[str, object]](), list[dict[str, object]]()
    for name, path, text in (("broken", source, changed(kind)), ("broken-bytecode", cached, "")):
        place = f"{GUEST}/{path.name}"
        put(place, text)
        volumes.append({"name": name, "hostPath": {"path": place, "type": "File"}})
        mounts.append({"name": name, "mountPath": f"{PLACE}/{path}", "readOnly": True})
    return {"extraVolumes": volumes, "extraVolumeMounts": mounts}


def mend(lab: Lab, node: Node) -> None:
    """The whole product again."""
    agent.BROKEN.unlink(missing_ok=True)
    _replaced(lab, node)
    agent.wait_ready(node)
    lab.clear(node)


def _replaced(lab: Lab, node: Node) -> None:
    """Install the chart with what BROKEN has, and wait until the agent's pod is another one."""
    before = agent.pod_of(node)
    agent.install(lab.plane, node.plan.config)
    deadline = time.monotonic() + agent.READY
    while (found := agent.pod_of(node)) is None or (before and found["metadata"]["uid"] == before["metadata"]["uid"]):
        if time.monotonic() > deadline:
            raise LabError(f"the agent's pod on {node.name} is not replaced")
        time.sleep(0.5)


def tried(kind: Kind) -> tuple[bool, str]:
    """One run of CI's command; whether it was red by a broken promise, and what it said.

    A test that is not there, or a guest that does not answer, is red, too: that is not what was to be shown.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", "run", "--keep", kind.test], cwd=ROOT, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    words = re.findall(r"^RED: (.*)", done.stdout, re.MULTILINE)
    failed = [each for each in outcomes.read() if each.word == outcomes.FAILED]
    broken = any(not each.own for each in failed) if kind.starts else any(each.startswith(AT_START) for each in words)
    print(done.stdout, flush=True)
    return done.returncode == 1 and broken, words[0] if words else f"exit code {done.returncode}"


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.broken", description=(__doc__ or "").split("\n", maxsplit=1)[0], epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("kind", choices=[*KINDS, "all"], help="; ".join(f"{k}: {v.what}" for k, v in KINDS.items()))
    parser.add_argument("--times", type=int, default=1, help="runs of each kind")
    asked = parser.parse_args()
    names = [*KINDS] if asked.kind == "all" else [asked.kind]
    lines = list[str]()
    missed = 0
    try:
        cluster.built(print)
        lab = Lab.up(progress=print)
        node = lab.numalign
        for name in names:
            break_(lab, node, KINDS[name])
            try:
                for number in range(1, asked.times + 1):
                    began = time.monotonic()
                    caught, words = tried(KINDS[name])
                    missed += not caught
                    verdict = "red" if caught else "NOT RED"
                    lines.append(
                        f"| {name} | {number} | {verdict} | {(time.monotonic() - began) / 60:.1f} | {words} |"
                    )
                    print(lines[-1], flush=True)
            finally:
                mend(lab, node)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return LAB_FAULT
    finally:
        (RUN / "broken.md").write_text(
            "\n".join(["| product | run | | minutes | |", "|---|--:|---|--:|---|", *lines, ""])
        )
    return GREEN if missed else 0


if __name__ == "__main__":
    sys.exit(main())
