"""Reads the kubelet's configuration from the kubelet, to learn whether it has static policies.

A kubelet with a static policy writes cpusets, and there are never two writers (safety rule S10). An agent asks the
kubelet of its own node, and for nothing but configz (S19).

https://HOST:10250/configz with the agent's token; the kubelet asks the API server whether it may (nodes/configz, KEP
2862), so nodes/proxy, which would allow running commands in pods, is never needed. The kubelet's certificate must be
one that the cluster's CA signed (serverTLSBootstrap): the token is sent to no server that cannot prove its identity.
Without such a certificate the answer is None, and other signs decide (`agent.host.writers`).

Called by `agent.app.cluster.api_pods` at start and now and then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import urllib3

from agent.kube.access import ApiAccess
from agent.model.fields import shortened

PORT = 10_250
SECONDS = 3.0
LARGEST = 1 << 20
OK = 200

_log = logging.getLogger(__name__)


def kubelet_configuration(access: ApiAccess, host: str, port: int = PORT) -> Mapping[str, Any] | None:
    """Read /configz; return None when the kubelet cannot be asked, and log the reason.

    Args:
        access: the token, and the CA that the kubelet's certificate is checked against.
        host: this node's address (status.hostIP of the agent's pod).
        port: the kubelet's.
    """
    where = f"[{host}]" if ":" in host else host
    try:
        with urllib3.PoolManager(ssl_context=access.trust(), retries=False) as pool:
            answer = pool.request(
                "GET", f"https://{where}:{port}/configz", headers={"Authorization": f"Bearer {access.token}"},
                timeout=urllib3.Timeout(connect=SECONDS, read=SECONDS), preload_content=False, redirect=False,
            )  # fmt: skip
            try:
                if answer.status != OK:
                    _log.info(
                        "the kubelet at %s:%d does not tell its configuration: HTTP %d", host, port, answer.status
                    )
                    return None
                body = json.loads(answer.read(LARGEST))
            finally:
                answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError, ValueError, RecursionError) as error:
        _log.info(
            "the kubelet at %s:%d cannot be asked for its configuration: %s",
            host,
            port,
            shortened(str(error), 200),
        )
        return None
    return body if isinstance(body, dict) else None
