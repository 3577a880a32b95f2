"""Where the API server is, how to trust it, and which token is valid now. Used by `watch.handlers` and `client`.

In a pod all three come from the mounted service account
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/). The token file is replaced while the
agent runs (about every hour): it is read again whenever it changes, so that a rotation is never seen as a refusal.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import MalformedError, SettingsError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LARGEST = 1 << 20
"""Bytes of certificates."""
LONGEST_TOKEN = 1 << 16


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """How to reach the API server.

    Attributes:
        server: base URL, https.
        ca: file with the certificates to trust.
        token_file: file with the bearer token; read again when it changes.
        check_name: compare the server's certificate with the host name; off only where a test's certificate names
            another one.
    """

    server: str
    ca: Path
    token_file: Path
    check_name: bool = True
    _known: dict[str, object] = field(default_factory=dict, repr=False, compare=False, hash=False)

    @property
    def token(self) -> str:
        """The present token; the last good one while the file is being replaced or holds none. Never logged."""
        try:
            found = self.token_file.stat()
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if self._known.get("seen") != seen:
                text = header_text(_read(self.token_file).decode("ascii"))
                if text:
                    self._known.update(seen=seen, token=text)
        except (OSError, UnicodeDecodeError, MalformedError):
            pass
        return str(self._known.get("token", ""))

    def trust(self) -> ssl.SSLContext:
        """Return what checks the certificates of API server and kubelet; raises OSError, ValueError."""
        certificates = _read(self.ca).decode("ascii", "ignore")
        if not certificates:  # the module ssl would trust the system's instead
            raise ValueError(f"{self.ca} holds no certificate")
        context = ssl.create_default_context(cadata=certificates)
        context.check_hostname = self.check_name
        return context


def header_text(text: str) -> str:
    """Check credentials for use in a request's header; return them without spaces and newlines around them.

    Raises:
        MalformedError: no header can carry them. The library's own error would contain the credentials.
    """
    found = text.strip()
    if len(found) > LONGEST_TOKEN or not (found.isascii() and found.isprintable()):
        raise MalformedError("the token that the credentials hold is not one line of ASCII letters")
    return found


def _read(path: Path) -> bytes:
    """Read a file that may be replaced by anything, as `agent.host.bounded` does. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, and no path
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(LARGEST) or b""


def in_cluster(environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> ApiAccess:
    """Read the access that a pod has; raises SettingsError naming what is missing.

    The address comes from the environment, not from DNS: a node agent must work before the cluster's DNS does.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise SettingsError(
            "KUBERNETES_SERVICE_HOST",
            "not set, so this is no pod of a cluster; use `numalign run --pods DIR` to serve a node without one",
        )
    for path in (account / "token", account / "ca.crt"):
        if not path.is_file():
            raise SettingsError(str(path), "missing; the pod needs automountServiceAccountToken: true")
    bracketed = f"[{host}]" if ":" in host else host
    return ApiAccess(server=f"https://{bracketed}:{port}", ca=account / "ca.crt", token_file=account / "token")
