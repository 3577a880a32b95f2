"""The sampler in a guest (tests/peers/sweep): started, read, ended; what was seen in each test goes to the report."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests import peers
from tests.lab.needs import LabError, PromiseError
from tests.lab.node import Node
from tests.lab.places import RUN, logs
from tests.lab.sweeps import Sweeps, judged, parsed, summary

FOLDER = "/run/numalign-lab"
FILE = RUN / "sweeps.jsonl"
"""A line for each test that was sampled."""
EMPTIES = 7
"""The first major number of kernels on which systemd empties the set of a cgroup that holds processes."""
ABSENT = 9
"""Exit code: the program is not in the guest."""
START = """test -x {program} || exit 9
mkdir -p {folder} && rm -f {folder}/out
setsid nohup nice -n -20 {program} {folder}/out </dev/null >{folder}/words 2>&1 &
echo $! >{folder}/pid
for n in $(seq 600); do test -s {folder}/out && break; sleep 0.1; done
test -s {folder}/out && cat /proc/sys/kernel/random/boot_id
"""
END = """kill -TERM $(cat {folder}/pid) && while kill -0 $(cat {folder}/pid) 2>/dev/null; do sleep 0.1; done
cat {folder}/out
"""


@dataclass
class Sampler:
    """Sweeps one node's kernel from `start` to `end`.

    Attributes:
        node: whose kernel is swept.
        excused: why overlaps meanwhile are not numalign's; "" where they are.
    """

    node: Node
    excused: str = ""
    _boot: str = ""

    def start(self) -> None:
        program = peers.build("sweep")
        place = f"{FOLDER}/{program.name}"
        command = START.format(program=place, folder=FOLDER)
        code, out, err = self.node.guest.execute(command)
        if code == ABSENT:
            self.node.run(f"mkdir -p {FOLDER}")
            self.node.guest.send(program, place)
            self.node.run(f"chmod 755 {place}")
            code, out, err = self.node.guest.execute(command)
        if code:
            raise LabError(f"the sampler on {self.node.name} does not start: {err.decode()} {self._words()}")
        self._boot = out.decode().strip()

    def seen(self) -> Sweeps:
        return parsed(self.node.run(f"cat {FOLDER}/out"))

    def end(self, test: str) -> None:
        """No more; raises PromiseError with what was seen and must not be. The figures get the test's name."""
        if self.node.run("cat /proc/sys/kernel/random/boot_id").strip() != self._boot:
            return  # the machine was started anew meanwhile, and what was written is gone
        code, out, err = self.node.guest.execute(END.format(folder=FOLDER))
        if code:
            raise LabError(f"the sampler on {self.node.name} did not run: {err.decode()} {self._words()}")
        seen = parsed(out.decode())
        release = self.node.run("uname -r")
        verdict = judged(seen, emptied=int(release.partition(".")[0]) >= EMPTIES)
        told = {
            "test": test, "sweeps": seen.count, "seconds": seen.seconds, "longest": seen.longest,
            "wrong": len(verdict.wrong), "excused": self.excused, "apart": verdict.apart,
        }  # fmt: skip
        with FILE.open("a") as file:
            file.write(json.dumps(told) + "\n")
        if verdict.wrong and not self.excused:
            kept = logs() / f"sweeps-{re.sub('[^a-z0-9]+', '-', test.rpartition('::')[2])}.jsonl"
            kept.write_bytes(out)
            raise PromiseError("\n".join([*verdict.wrong, f"all sweeps: {kept}"]))

    def _words(self) -> str:
        return self.node.run(f"cat {FOLDER}/words 2>/dev/null; true")


def figures() -> str:
    """What was seen in all tests, for the report."""
    lines = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    if not lines:
        return ""
    sweeps, seconds = sum(each["sweeps"] for each in lines), sum(each["seconds"] for each in lines)
    counted = sum(each["wrong"] for each in lines if not each["excused"])
    longest = max(each["longest"] for each in lines)
    excused = Counter({each["excused"]: each["wrong"] for each in lines if each["excused"]})
    rows = [
        ("sweeps of the kernel's sets", f"{sweeps} in {seconds:.0f} s of {len(lines)} tests"),
        ("sweeps a second", f"{sweeps / max(seconds, 1):.1f}; the longest pause {longest:.1f} s"),
        ("overlaps and threads outside their cgroup that count", str(counted)),
        ("overlaps that do not count", summary(Counter(each["apart"]) for each in lines)),
        *((f"while {why}", f"{number} that are not numalign's") for why, number in sorted(excused.items())),
    ]  # fmt: skip
    return table("The kernel, while things changed", rows)


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A section of the report."""
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join([f"## {title}\n", "| what | |", "|---|---|", *lines, ""])
