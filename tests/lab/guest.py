"""One QEMU machine: started, reached, restarted, ended. Commands go to `guest/server.py` over a loopback port."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import free_port
from tests.lab import builds, procs
from tests.lab.needs import LabError, program
from tests.lab.places import RUN
from tests.lab.shapes import MACHINES, Machine

SERVER, KUBELET = 7000, 10250
ATTEMPTS, BOOT, STILL = 3, 300.0, 150.0
"""Seconds until a guest must answer; seconds without a word on its console after which it is started again."""
THREAD = os.environ.get("NUMALIGN_LAB_TCG")
"""multi: a thread per emulated processor; now and then one stands still (`Watch`). single: never, and slower.

Without it Linux 7 gets one thread, since with many QEMU 7.2 ends it within seconds, and any other kernel many.
"""
COMMON = ("-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc")
APPEND = (
    "console=ttyS0 root=/dev/nvme0n1 rw no_timer_check mitigations=off net.ifnames=0 quiet panic=-1 "
    # A late answer is no sign of a bad clock here, nor of a processor that hangs; no code is patched every 100 ms.
    "tsc=reliable nowatchdog kfence.sample_interval=0 systemd.default_device_timeout_sec=900 "
    # Go programs would start a thread per emulated processor, and the host has two.
    "systemd.setenv=GOMAXPROCS=2"
)
V2, V1 = "systemd.unified_cgroup_hierarchy=1", "systemd.unified_cgroup_hierarchy=0"


class CommandError(LabError):
    """A command in a guest failed; the text has its code and its words."""


@dataclass(frozen=True)
class Reach:
    """How a guest is reached, kept in run/lab/NAME/reach.json.

    Attributes:
        number: of its network, 10.0.<number>.0/24.
        token: that its server asks for.
        server, kubelet: ports of loopback that lead to the guest's 7000 and 10250.
        machine: name of its shape.
        cgroups: version of its cgroups, 1 or 2.
        linux: version of its kernel, a key of `builds.LINUX`.
        runtime: of containers, a key of `builds.RUNTIMES`.
    """

    number: int
    token: str
    server: int
    kubelet: int
    machine: str
    cgroups: int = 2
    linux: str = builds.OWN_LINUX
    runtime: str = builds.OWN_RUNTIME

    @property
    def disk(self) -> builds.Disk:
        return builds.disk(self.linux, self.runtime)

    @property
    def address(self) -> str:
        return f"10.0.{self.number}.15"

    @property
    def host(self) -> str:
        return f"10.0.{self.number}.2"


class Guest:
    """A machine that runs or may be started.

    Attributes:
        resting: its processors are stopped (`rest`).
    """

    def __init__(self, name: str, reach: Reach) -> None:
        self.name, self.reach = name, reach
        self.folder = RUN / name
        self.machine: Machine = MACHINES[reach.machine]
        self.resting = False

    @classmethod
    def create(
        cls, name: str, number: int, machine: Machine, *, cgroups: int = 2, linux: str = builds.OWN_LINUX,
        runtime: str = builds.OWN_RUNTIME,
    ) -> Guest:  # fmt: skip
        """A guest with a fresh disk; nothing runs yet."""
        token, ports = secrets.token_hex(16), (free_port(), free_port())
        reach = Reach(number, token, *ports, machine.name, cgroups, linux, runtime)
        guest = cls(name, reach)
        guest.folder.mkdir(parents=True, exist_ok=True)
        (guest.folder / "reach.json").write_text(json.dumps(asdict(reach)))
        return guest

    @classmethod
    def find(cls, name: str) -> Guest | None:
        """The guest of that name, if it was created; it may be down."""
        try:
            told = json.loads((RUN / name / "reach.json").read_text())
            return cls(name, Reach(**told))
        except (OSError, ValueError, TypeError):
            return None

    # ---- power

    def boot(self, images: Path, progress: Callable[[str], None] = lambda _text: None) -> None:
        """Start it on fresh disks, one of them with container images, and wait until it answers."""

        def fresh() -> None:
            builds.overlay(self.reach.disk.image, self.folder / "disk.qcow2")
            builds.overlay(images, self.folder / "images.qcow2")

        self.power_on(progress=progress, before=fresh)

    def power_on(
        self, machine: Machine | None = None, progress: Callable[[str], None] = lambda _text: None,
        before: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Start it and wait until it answers; with another machine, if one is given.

        A guest that does not come up is started again: emulated processors that are set up side by side do, rarely,
        wait for each other for ever when the host is busy, and QEMU has ended with a general protection fault there.
        """
        for attempt in range(1, ATTEMPTS + 1):
            before()
            self.power(machine)
            try:
                self.wait_up()
            except LabError as error:
                self.off()
                if attempt == ATTEMPTS:
                    raise
                progress(f"{self.name} did not come up ({error}); starting it again")
            else:
                return

    def power(self, machine: Machine | None = None) -> None:
        """Start QEMU on the disk as it is; with another machine, if one is given."""
        (self.folder / "console.log").unlink(missing_ok=True)
        procs.start(self.name, self._command(machine or self.machine))

    def off(self) -> None:
        procs.stop(self.name)

    @property
    def running(self) -> bool:
        return procs.alive(self.name)

    def wait_up(self, seconds: float = BOOT) -> None:
        """Wait until it runs commands; raises LabError when it does not, or says nothing for long."""
        began = since = time.monotonic()
        size = -1
        while True:
            try:
                self.run("true", seconds=10)
            except (OSError, LabError):
                pass
            else:
                return
            now = time.monotonic()
            if self._console() != size:
                size, since = self._console(), now
            if not self.running:
                raise LabError(f"QEMU of {self.name} ended:\n{procs.end_of_log(self.name)}")
            if now - began > seconds or now - since > STILL:
                raise LabError(
                    f"{self.name} does not answer after {now - began:.0f} s; see {self.folder}/console.log"
                )
            time.sleep(0.3)

    def _console(self) -> int:
        path = self.folder / "console.log"
        return path.stat().st_size if path.exists() else 0

    def _command(self, machine: Machine) -> list[str | Path]:
        reach, folder = self.reach, self.folder
        thread = THREAD or ("single" if reach.linux in builds.BACKPORTED else "multi")
        net = f"net=10.0.{reach.number}.0/24,host={reach.host},dhcpstart={reach.address}"
        tty = f"socket,id=tty,path={folder / 'console.sock'},server=on,wait=off,logfile={folder / 'console.log'}"
        ports = f"hostfwd=tcp:127.0.0.1:{reach.server}-:{SERVER},hostfwd=tcp:127.0.0.1:{reach.kubelet}-:{KUBELET}"
        words = (
            f"{APPEND} {V2 if reach.cgroups == 2 else V1} lab.address={reach.address}/24 lab.gateway={reach.host} "
            f"lab.token={reach.token} {machine.append}"
        )
        return [
            program("qemu-system-x86_64"), "-accel", f"tcg,thread={thread}", *COMMON, *machine.arguments,
            "-kernel", reach.disk.kernel, "-append", words.strip(),
            "-device", "nvme,id=nvme,serial=lab,bus=pcie.0", *_disk(folder, "disk", 1), *_disk(folder, "images", 2),
            "-netdev", f"user,id=net,{net},{ports}",
            "-device", "virtio-net-pci,netdev=net,bus=pcie.0",
            "-device", "virtio-rng-pci,bus=pcie.0",
            "-chardev", tty, "-serial", "chardev:tty", "-qmp", f"unix:{folder / 'qmp.sock'},server=on,wait=off",
        ]  # fmt: skip

    # ---- commands

    def connect(self, asked: dict[str, object], seconds: float) -> socket.socket:
        """A connection to the guest's server with a request sent."""
        link = socket.create_connection(("127.0.0.1", self.reach.server), timeout=seconds + 30)
        link.sendall(json.dumps({"token": self.reach.token, "seconds": seconds, **asked}).encode() + b"\n")
        return link

    def execute(self, command: str, data: bytes = b"", *, seconds: float = 120) -> tuple[int, bytes, bytes]:
        """Run a command as root with bash; its exit code (124: out of time), stdout and stderr."""
        with self.connect({"do": "run", "command": command, "input": len(data)}, seconds) as link:
            link.sendall(data)
            with link.makefile("rb") as answer:
                head = answer.readline()
                if not head:
                    raise LabError(f"{self.name}: the connection was cut")
                told = json.loads(head)
                return told["code"], answer.read(told["stdout"]), answer.read(told["stderr"])

    def nudge(self) -> None:
        """Stop all processors for a moment and let them go on: one that missed its timer sees it then."""
        self.qmp("stop")
        self.qmp("cont")

    def rest(self) -> None:
        """Stop all processors until `wake`: those of the other guests get this machine to themselves."""
        self.resting = True
        self.qmp("stop")

    def wake(self) -> None:
        """Let all processors go on; the guest's clock stood still, and is set."""
        self.qmp("cont")
        self.run(f"date -s @{time.time():.2f}")
        self.resting = False

    def run(self, command: str, data: bytes | str = b"", *, seconds: float = 120) -> str:
        """Run a command as root with bash; its stdout. Raises CommandError when it fails."""
        code, out, err = self.execute(command, data.encode() if isinstance(data, str) else data, seconds=seconds)
        if code:
            said = (err or out).decode(errors="replace").strip()[-1500:]
            raise CommandError(f"{self.name}: `{command[:300]}` ended with {code}: {said}")
        return out.decode(errors="replace")

    def put(self, path: str, data: bytes | str, mode: str = "644") -> None:
        """Write a file in the guest, by renaming."""
        new = f"'{path}.new'"
        self.run(f"mkdir -p \"$(dirname {new})\" && cat >{new} && chmod {mode} {new} && mv {new} '{path}'", data)

    def get(self, path: str) -> bytes:
        """Read a file of the guest; raises CommandError when there is none."""
        code, out, err = self.execute(f"cat '{path}'")
        if code:
            raise CommandError(f"{self.name}: {err.decode(errors='replace').strip()}")
        return out

    def send(self, source: Path, path: str) -> None:
        """Copy a file of any size into the guest."""
        self.run(f"cat >'{path}'", source.read_bytes(), seconds=600)

    def qmp(self, command: str, **arguments: object) -> object:
        """One command of QEMU's monitor (QMP)."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(30)
            link.connect(str(self.folder / "qmp.sock"))
            with link.makefile("rwb") as file:
                file.readline()
                answer: dict[str, Any] = {}
                for asked in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    file.write(json.dumps(asked).encode() + b"\n")
                    file.flush()
                    answer = json.loads(file.readline())
                    while "event" in answer:
                        answer = json.loads(file.readline())
                if "error" in answer:
                    raise LabError(f"{self.name}: QEMU refuses {command}: {answer['error']['desc']}")
                return answer["return"]


def _disk(folder: Path, name: str, number: int) -> tuple[str, ...]:
    """A namespace of the one NVMe controller: /dev/nvme0n1, /dev/nvme0n2."""
    return (
        "-drive", f"file={folder / name}.qcow2,format=qcow2,if=none,id={name},cache=unsafe,discard=unmap",
        "-device", f"nvme-ns,drive={name},nsid={number}",
    )  # fmt: skip


def qemu_version() -> str:
    """As QEMU tells it; a report of what ran without a guest says that there is none."""
    try:
        command = [program("qemu-system-x86_64"), "--version"]
    except LabError:
        return "not installed"
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return told.stdout.splitlines()[0]
