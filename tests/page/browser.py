"""Headless Chromium, driven over the DevTools protocol through a pipe: no driver program, no port, no network.

Chromium reads commands from its file descriptor 3 and answers on 4, JSON ended by a NUL
(https://chromedevtools.github.io/devtools-protocol/, --remote-debugging-pipe). Used by the tests of the page and by
`make pictures`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests import patience, programs
from tests.patience import PATIENCE

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--force-color-profile=srgb", "--font-render-hinting=none", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One browser process with one page. A context manager: leaving it ends the process.

    Attributes:
        console: what the page wrote to the console, exceptions and refusals of the security policy among it.
        requested: every address that the page asked for.
    """

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="numalign-chromium-")
        self._send, self._receive = (1 << 30,) * 2
        self._buffer, self._last = b"", 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.console: list[str] = []
        self.requested: list[str] = []
        self._process = self._start()
        target = self.call("Target.createTarget", {"url": "about:blank"}, page=False)["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, page=False)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _start(self) -> subprocess.Popen[bytes]:
        program = programs.need("chromium")
        theirs_in, self._send = os.pipe()
        self._receive, theirs_out = os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'  # a shell puts the pipes where they are expected
        try:
            return subprocess.Popen(
                ["bash", "-c", script, program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
                pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # it may have ended already
            self.call("Browser.close", page=False)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._send)
        os.close(self._receive)
        shutil.rmtree(self._profile, ignore_errors=True)

    # ---- the protocol

    def call(self, method: str, params: dict[str, Any] | None = None, *, page: bool = True) -> dict[str, Any]:
        """One command; raises RuntimeError with what the browser says against it."""
        self._last += 1
        number, message = self._last, {"id": self._last, "method": method, "params": params or {}}
        if page:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        until = time.monotonic() + PATIENCE
        while number not in self._answers:
            self._read(until - time.monotonic())
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self, seconds: float) -> None:
        """Wait for messages and sort them."""
        if seconds <= 0 or not select.select([self._receive], [], [], seconds)[0]:
            raise TimeoutError(f"the browser said nothing for {PATIENCE:.0f} s")
        chunk = os.read(self._receive, 1 << 20)
        if not chunk:
            raise RuntimeError("the browser ended")
        *messages, self._buffer = (self._buffer + chunk).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._heard(message["method"], message["params"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            self.console.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    # ---- what people do

    def size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def media(self, **features: str) -> None:
        """Media features: prefers_color_scheme="dark", prefers_reduced_motion="reduce"; media="print"."""
        named = [{"name": key.replace("_", "-"), "value": value} for key, value in features.items() if key != "media"]
        self.call("Emulation.setEmulatedMedia", {"media": features.get("media", ""), "features": named})

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        answer = self.call("Page.navigate", {"url": url})
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        self.until(f"location.href.startsWith({json.dumps(url[:40])}) && document.readyState === 'complete'")

    def fresh(self, url: str, **media: str) -> None:
        """The same with nothing left of an earlier page, and these media features."""
        self.open("about:blank")
        self.media(**media)
        self.console.clear()
        self.requested.clear()
        self.open(url)

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON value the page gives
        """The value of an expression in the page; a promise is awaited."""
        found_ = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in found_:
            details = found_["exceptionDetails"]
            raise RuntimeError(str(details.get("exception", {}).get("description") or details["text"]))
        return found_["result"].get("value")

    def until(self, condition: str) -> Any:  # noqa: ANN401 - as run
        """Wait until an expression is true; its value."""
        return patience.until(
            lambda: self.run(condition), lambda: f"{condition}; console: {self.console[-5:]}", pause=0.05
        )

    def press(self, key: str) -> None:
        """A key, by its DOM name: "ArrowRight", "Enter", "Escape", "Tab", "a"."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                 "ArrowDown": 40, "Home": 36, "End": 35}  # fmt: skip
        text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 else "")
        common = {"key": key, "code": key if len(key) > 1 else f"Key{key.upper()}",
                  "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}  # fmt: skip
        self.call("Input.dispatchKeyEvent", {"type": "keyDown" if text else "rawKeyDown", "text": text, **common})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **common})

    def shot(self, path: Path) -> Path:
        """A PNG of what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", {"format": "png"})["data"]))
        return path
