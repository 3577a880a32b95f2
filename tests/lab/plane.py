"""The lab's control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

The same programs as in tests/cluster, but outliving the command that starts them, with certificates, all admission
plugins, and the controllers that make a DaemonSet's pods.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.control_plane import Api, ApiError, etcd_flags, free_port, kubeconfig
from tests.lab import builds, procs
from tests.lab.needs import LabError, program
from tests.lab.places import RUN, logs

DAYS = "3650"
CONFIG = "[req]\ndistinguished_name=name\n[name]\n"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


class Authority:
    """The CA in a folder: ca.crt, ca.key and NAME.crt, NAME.key of what it signed; one that is there stays."""

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
        """A certificate that serves these DNS names and addresses, and asks as a user; its file, and its key's."""
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


PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SERVICES = "10.96.0.0/16"
SERVICE = "10.96.0.1"
"""The address of the Service "kubernetes": the first one of SERVICES."""
READY = 180.0


class Plane(Api):
    """The control plane; made by `fresh`, found again by `find`. told.json keeps ports, token and program."""

    def __init__(self, folder: Path, told: dict[str, str]) -> None:
        self.folder, self._told = folder, told
        self.authority = Authority(folder / "certs")
        super().__init__(f"https://127.0.0.1:{told['api']}", self.authority.ca, told["admin"])

    @classmethod
    def fresh(cls, program: Path) -> Plane:
        """A new one, with empty data, of a program that is all of PARTS by its name; nothing runs yet."""
        folder = RUN / "plane"
        folder.mkdir(parents=True, exist_ok=True)
        told = {name: str(free_port()) for name in ("api", "etcd", "peer", "controllers", "scheduler")}
        told |= {"admin": secrets.token_hex(16), "program": str(program)}
        plane = cls(folder, told)
        (folder / "told.json").write_text(json.dumps(told))
        plane._prepare()
        return plane

    @classmethod
    def find(cls) -> Plane | None:
        try:
            return cls(RUN / "plane", json.loads((RUN / "plane" / "told.json").read_text()))
        except (OSError, ValueError, KeyError):
            return None

    @property
    def program(self) -> str:
        return self._told.get("program", "")

    @property
    def port(self) -> int:
        return int(self._told["api"])

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def _prepare(self) -> None:
        """Keys, tokens, certificates, the admin's kubeconfig."""
        folder = self.folder
        for name in PARTS:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(self.program)
        builds.run("build", self.program, "sa-key", folder / "sa.key")
        (folder / "tokens.csv").write_text(f'{self._told["admin"]},admin,admin,"system:masters"\n')
        seen_by_guests = [f"10.0.{number}.2" for number in range(2, 20)]
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        self.authority.sign("apiserver", "kube-apiserver", names=[*names, "127.0.0.1", SERVICE, *seen_by_guests])
        self.authority.sign("to-kubelet", "kube-apiserver", group="system:masters")
        self.kubeconfig.write_text(kubeconfig(self.server, self.ca, {"token": self._told["admin"]}))
        self.kubeconfig.chmod(0o600)

    # ---- parts

    def start(self) -> None:
        """Start what does not run, and wait until the API server answers and the default account is there."""
        for name in PARTS[:2]:
            if not procs.alive(name):
                self.start_part(name)
        self.wait_ready()
        for name in PARTS[2:]:
            if not procs.alive(name):
                self.start_part(name)
        self._wait_for(
            lambda: self.call("GET", "/api/v1/namespaces/default/serviceaccounts/default"), "default account"
        )

    def start_part(self, name: str) -> None:
        procs.start(name, [self.folder / name, *getattr(self, f"_{name.replace('-', '_')}")()])

    def stop(self) -> None:
        for name in reversed(PARTS):
            procs.stop(name)

    def wait_ready(self, seconds: float = READY) -> None:
        self._wait_for(lambda: self.call("GET", "/readyz", raw=True), "API server", seconds)

    def _wait_for(self, ask: object, what: str, seconds: float = READY) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                ask()  # type: ignore[operator]  # a lambda of this file
            except (ApiError, OSError) as error:
                if time.monotonic() > deadline or not procs.alive("kube-apiserver"):
                    said = procs.end_of_log("kube-apiserver")
                    raise LabError(f"{what}: {error}; {logs()}/kube-apiserver.log ends with\n{said}") from error
                time.sleep(0.2)
            else:
                return

    def _etcd(self) -> list[str]:
        return [*etcd_flags(self.folder, self._told["etcd"], self._told["peer"])]

    def _kube_apiserver(self) -> list[str]:
        certs, key = self.authority.folder, self.folder / "sa.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._told['etcd']}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--tls-cert-file={certs / 'apiserver.crt'}", f"--tls-private-key-file={certs / 'apiserver.key'}",
            f"--client-ca-file={self.ca}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--kubelet-client-certificate={certs / 'to-kubelet.crt'}",
            f"--kubelet-client-key={certs / 'to-kubelet.key'}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--service-cluster-ip-range={SERVICES}",
            "--allow-privileged=true", "--profiling=false",
            "--endpoint-reconciler-type=none",  # its address is loopback's, which no Endpoints object may hold
        ]  # fmt: skip

    def _kube_controller_manager(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={self._told['controllers']}", f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}", "--use-service-account-credentials=true",
            "--node-monitor-grace-period=2m",  # emulated machines are slow
        ]  # fmt: skip

    def _kube_scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={self._told['scheduler']}",
        ]  # fmt: skip
