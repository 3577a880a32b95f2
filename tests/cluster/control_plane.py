"""A real etcd and kube-apiserver on loopback, for tests: RBAC on, service account tokens bound to pods and nodes.

Where a test asks for them, kube-controller-manager's own controllers run beside them.

The programs come from tests/peers/kube. `ControlPlane` starts and ends them, can stop and restart each by itself, and
speaks to the API as the cluster's admin. Everything lives in one folder.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml

from tests.patience import until

ADMIN = "admin-token-of-a-test"
NOWHERE = "192.0.2.1"
"""What the API server tells others of itself (RFC 5737: nobody's). Otherwise it needs a default route to start.
Endpoints take no address of loopback."""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ApiError(Exception):
    """The API server said no; `status` is the HTTP code, the text its Status message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """Speaks to an API server as the cluster's admin, whose token is used where no other is given."""

    def __init__(self, server: str, ca: Path, admin: str = ADMIN) -> None:
        self.server, self.ca, self._admin = server, ca, admin

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Made once: to read a certificate takes longer than most requests do."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.check_hostname = False  # the certificate names the machine, not the loopback address
        return context

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        kind: str = "application/json",
        raw: bool = False,
        timeout: float = 30,
    ) -> Any:  # noqa: ANN401 - the API's JSON
        """One request; returns the JSON answer (raw: its text), raises ApiError. A body of bytes goes as it is."""
        request = urllib.request.Request(self.server + path, method=method)
        request.add_header("Authorization", f"Bearer {token or self._admin}")
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        try:
            with urllib.request.urlopen(request, data=data, timeout=timeout, context=self._trust) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError):  # no Status object: the text as it came
                text = json.loads(text)["message"]
            raise ApiError(error.code, text) from None
        return text if raw else json.loads(text)

    def found(self, path: str, method: str = "GET") -> Any:  # noqa: ANN401 - the API's JSON
        """One request without a body; its JSON answer, None where nothing is there."""
        try:
            return self.call(method, path)
        except ApiError as error:
            if error.status != 404:
                raise
        return None

    def create(self, *objects: dict[str, Any]) -> list[dict[str, Any]]:
        """Create objects of any kind that the paths below know; returns them as stored."""
        return [self.call("POST", path_of(each), each) for each in objects]

    def ensure(self, *objects: dict[str, Any]) -> None:
        """Create what is there once per cluster, whichever test comes first: one that is there already will do."""
        for each in objects:
            try:
                self.create(each)
            except ApiError as error:
                if error.status != 409:
                    raise

    def wait_served(self, path: str) -> None:
        """Wait until objects of a new definition can be listed."""

        def served() -> bool:
            with contextlib.suppress(ApiError):  # not yet
                return self.call("GET", path) is not None
            return False

        until(served, path)

    def token(self, namespace: str, account: str, pod: dict[str, Any] | None = None) -> str:
        """A service account's token, bound to a pod (and so to its node) when one is given."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            spec["boundObjectRef"] = {
                "kind": "Pod", "apiVersion": "v1",
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
            }  # fmt: skip
        answer = self.call(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )  # fmt: skip
        token: str = answer["status"]["token"]
        return token

    def wait_allowed(self, token: str, verb: str, resource: str, group: str = "", **more: str) -> None:
        """Wait until a token may do something: the server hears of its own bindings a moment after they are made.

        Args:
            token: whose rights are asked for.
            verb: as a rule of a role has it.
            resource: the same.
            group: the same.
            more: subresource, namespace and name, where these matter.
        """
        attributes = {"verb": verb, "resource": resource, "group": group, **more}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        asked = {**kind, "spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        until(lambda: self.call("POST", path, asked, token=token)["status"]["allowed"], f"{verb} {resource}")


class ControlPlane(Api):
    """etcd, kube-apiserver, controllers; `with ControlPlane(program, folder) as cluster: ...`."""

    def __init__(self, program: Path, folder: Path, *flags: str) -> None:
        self.folder, self._program, self._flags = folder, program, flags
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        super().__init__(f"https://127.0.0.1:{self.port}", folder / "certs" / "apiserver.crt")
        subprocess.run([program, "sa-key", folder / "sa.key"], check=True)
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start_etcd()
            self.start_apiserver()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_etcd(self) -> None:
        """Start etcd; its data survive a restart within the test."""
        self._start("etcd", *etcd_flags(self.folder, self._etcd_port, self._peer_port))

    def etcd_written(self) -> int:
        """Bytes that etcd wrote to its log since it started."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._etcd_port}/metrics", timeout=30) as answer:
            found = re.search(r"^etcd_disk_wal_write_bytes_total (\S+)", answer.read().decode(), re.MULTILINE)
        return int(float(found[1])) if found else 0

    def start_apiserver(self) -> None:
        """Start kube-apiserver on the port that it keeps for the whole test."""
        key = str(self.folder / "sa.key")
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            f"--advertise-address={NOWHERE}",
            f"--secure-port={self.port}", f"--cert-dir={self.folder / 'certs'}", "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true", "--profiling=false",
            "--disable-admission-plugins=ServiceAccount", *self._flags,
        )  # fmt: skip

    def start_controllers(self, *names: str) -> None:
        """Start kube-controller-manager with these controllers only: the others would tidy up what tests play."""
        self._start(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            "--bind-address=127.0.0.1", f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'controllers'}",
            f"--controllers={','.join(names)}", "--profiling=false",
        )  # fmt: skip

    def start_scheduler(self, config: dict[str, Any]) -> None:
        """Start kube-scheduler with a KubeSchedulerConfiguration; its client is quick unless that says otherwise."""
        file = self.folder / "scheduler.json"
        limits = {"qps": 1000, "burst": 1000, **config.get("clientConnection", {})}
        connection = {**limits, "kubeconfig": str(self.kubeconfig)}
        file.write_text(json.dumps({**config, "clientConnection": connection}))
        self._start(
            "kube-scheduler", f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'scheduler'}",
        )  # fmt: skip

    @cached_property
    def kubeconfig(self) -> Path:
        file = self.folder / "kubeconfig"
        file.write_text(kubeconfig(self.server, self.ca, {"token": ADMIN}))
        return file

    def _start(self, name: str, *flags: str) -> None:
        link = self.folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(self._program)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen([link, *flags], stdout=log, stderr=log)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End one of them, or (SIGSTOP, SIGCONT) pause it and let it go on."""
        process = self.processes[name]
        process.send_signal(how)
        if how not in {signal.SIGSTOP, signal.SIGCONT}:
            process.wait(30)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(30)

    def wait_ready(self, seconds: float = 120) -> None:
        """Wait until /readyz answers ok; raises with the end of the log when it does not."""
        process = self.processes["kube-apiserver"]

        def answered() -> bool:
            with contextlib.suppress(ApiError, OSError):  # not yet
                return bool(self.call("GET", "/readyz", raw=True) == "ok")
            return process.poll() is not None

        def log() -> str:
            return (
                f"kube-apiserver (exit {process.poll()}):\n{(self.folder / 'kube-apiserver.log').read_text()[-3000:]}"
            )

        until(answered, log, within=seconds, pause=0.2)
        assert process.poll() is None, log()


def etcd_flags(folder: Path, port: int | str, peer_port: int | str) -> tuple[str, ...]:
    """What etcd is started with, on loopback: fsync is off, since nobody pulls the plug of a test."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return (
        "--data-dir", str(folder / "etcd-data"), "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
    )  # fmt: skip


def kubeconfig(server: str, ca: Path, user: dict[str, str], namespace: str = "default") -> str:
    """A kubeconfig with everything in it; the user has a token, or client-certificate-data and client-key-data."""
    trust = {"server": server, "certificate-authority-data": in_base64(ca)}
    return yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": trust}], "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}],
    })  # fmt: skip


def in_base64(path: Path) -> str:
    """A file's bytes for a kubeconfig."""
    return base64.b64encode(path.read_bytes()).decode()


def plural(kind: str) -> str:
    """A kind as paths name it: nodes, policies, classes."""
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def path_of(body: dict[str, Any]) -> str:
    """The collection an object is created in."""
    group = body["apiVersion"]
    base = "/api/v1" if group == "v1" else f"/apis/{group}"
    namespace = body["metadata"].get("namespace")
    return f"{base}/namespaces/{namespace}/{plural(body['kind'])}" if namespace else f"{base}/{plural(body['kind'])}"


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """User and system time that a process has used, from /proc/<pid>/stat."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
