"""A certificate authority for the lab, by openssl: servers' and clients' certificates for as long as it lives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.lab.needs import LabError, program

DAYS = "3650"
CONFIG = "[req]\ndistinguished_name=name\n[name]\n"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


class Authority:
    """The CA in a folder: ca.crt, ca.key and NAME.crt, NAME.key of what it signed.

    Args:
        folder: where they are; a CA that is there is used again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "openssl.cnf").write_text(CONFIG)
        if not self.ca.exists():
            self._make(
                "ca", "/CN=lab", ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
            )

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    def sign(self, name: str, user: str, *, group: str = "", names: Iterable[str] = ()) -> tuple[Path, Path]:
        """A certificate that serves and asks.

        Args:
            name: of its files.
            user: CN, the user's name for the API server.
            group: O, the user's group.
            names: DNS names and addresses that it serves.

        Returns:
            Its file, and that of its key.
        """
        alternatives = ",".join(f"{'IP' if each[0].isdigit() else 'DNS'}:{each}" for each in names)
        extensions = ["basicConstraints=CA:FALSE", "extendedKeyUsage=serverAuth,clientAuth"]
        extensions += [f"subjectAltName={alternatives}"] if alternatives else []
        signer = ("-CA", str(self.ca), "-CAkey", str(self.folder / "ca.key"))
        self._make(name, f"{f'/O={group}' if group else ''}/CN={user}", extensions, signer)
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def _make(self, name: str, subject: str, extensions: Iterable[str], signer: tuple[str, ...] = ()) -> None:
        added = [part for each in extensions for part in ("-addext", each)]
        done = subprocess.run(
            [
                program("openssl"), "req", "-x509", *KEY, "-config", self.folder / "openssl.cnf", "-days", DAYS,
                "-subj", subject, "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.crt",
                *added, *signer,
            ], capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"openssl made no certificate for {name}: {done.stderr.strip()[-500:]}")
