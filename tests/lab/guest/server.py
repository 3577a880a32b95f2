"""Runs in a guest: executes what the lab sends, as root. Standard library only.

One connection is one command. The first line is JSON: {"token", "do": "run" | "shell", "command", "input", "seconds",
"environment"}, `input` being the number of bytes that follow. A run is answered with a line {"code", "stdout",
"stderr"} (sizes) and the bytes. A shell goes on as a terminal. The address and the token come from the kernel's
command line (lab.address, lab.gateway, lab.token); QEMU forwards a port of the host's loopback to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import socket
import socketserver
import subprocess
import time
from pathlib import Path

PORT = 7000
WORDS = dict(word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word)


def connect() -> None:
    """Give the guest its address: the first device of virtio_net, whatever other network devices there are."""
    subprocess.run(["modprobe", "virtio_net"], check=False)
    while True:
        for path in Path("/sys/class/net").iterdir():
            driver = path / "device" / "driver"
            if driver.exists() and driver.resolve().name == "virtio_net":
                for command in (
                    ["ip", "link", "set", "lo", "up"],
                    ["ip", "link", "set", path.name, "up"],
                    ["ip", "address", "replace", WORDS["lab.address"], "dev", path.name],
                    ["ip", "route", "replace", "default", "via", WORDS["lab.gateway"]],
                ):
                    subprocess.run(command, check=False)
                return
        time.sleep(0.1)


class Handler(socketserver.StreamRequestHandler):
    """One command."""

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        if asked.get("token") != WORDS["lab.token"]:
            return
        environment = {**os.environ, "HOME": "/root", "TERM": "xterm", **asked.get("environment", {})}
        if asked["do"] == "shell":
            self._shell(environment, asked)
            return
        data = self.rfile.read(asked.get("input", 0))
        process = subprocess.Popen(
            ["/bin/bash", "-c", asked["command"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment, start_new_session=True, cwd="/root",
        )  # fmt: skip
        try:
            out, err = process.communicate(data, timeout=asked["seconds"])
            code = process.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code = 124
        self.wfile.write(
            json.dumps({"code": code, "stdout": len(out), "stderr": len(err)}).encode() + b"\n" + out + err
        )

    def _shell(self, environment: dict[str, str], asked: dict[str, object]) -> None:
        child, terminal = pty.fork()
        if child == 0:
            os.execve("/bin/bash", ["bash", "-l"], environment)  # noqa: S606 - it is the shell
        with contextlib.suppress(OSError):  # one side hung up
            while True:
                ready, _, _ = select.select([terminal, self.connection], [], [])
                if terminal in ready:
                    self.connection.sendall(os.read(terminal, 65536))
                if self.connection in ready:
                    data = self.connection.recv(65536)
                    if not data:
                        break
                    os.write(terminal, data)
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.kill(child, signal.SIGHUP)
        os.waitpid(child, 0)


class Server(socketserver.ThreadingTCPServer):
    """Many commands at a time."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
    address_family = socket.AF_INET


if __name__ == "__main__":
    connect()
    with Server(("0.0.0.0", PORT), Handler) as server:  # noqa: S104 - the guest's network ends at QEMU
        server.serve_forever()
