"""Where the API server is, how to trust it, and which token is valid now. Used by `handlers` and `client`.

In a pod all three come from the mounted service account
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/). The token file is replaced while the
agent runs (about every hour): it is read again whenever it changes, so that a rotation is never seen as a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import SettingsError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
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
        """The token now; the last good one while the file is being replaced. Never logged."""
        try:
            stat = self.token_file.stat()
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if self._known.get("seen") != seen:
                text = self.token_file.read_text(encoding="ascii").strip()
                if text:
                    self._known.update(seen=seen, token=text)
        except (OSError, UnicodeDecodeError):
            pass
        return str(self._known.get("token", ""))


def in_cluster(environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Access:
    """The access of a pod; raises SettingsError naming what is missing.

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
    return Access(server=f"https://{bracketed}:{port}", ca=account / "ca.crt", token_file=account / "token")
