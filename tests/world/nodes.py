"""The managers of a described machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.core.admission.node import Node
from agent.core.devices.claims import ClaimFollower
from agent.core.machines.kubelet_view import managed
from agent.core.machines.synthetic import parse_synthetic
from agent.model.devices import DeviceInventory
from agent.model.machine import Machine
from agent.settings import parse, rules_of


def managers_of(machine: Machine | str, settings: Mapping[str, Any] | None = None) -> Node:
    """The managers of a machine, or of one that a text describes, under a document of settings.

    Raises:
        SettingsError: the document is wrong, or asks for what this machine cannot give.
    """
    found = parse_synthetic(machine) if isinstance(machine, str) else machine
    asked = parse(settings or {})[0]
    view = managed(found, asked.compatibility.mode)
    rules = rules_of(asked, view)
    followed = (ClaimFollower(view, rules),) if asked.dra.enabled else ()
    return Node(found, rules, DeviceInventory.from_machine(view, rules.devices), followed)
