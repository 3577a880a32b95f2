"""Serves the node page for an engine, as the settings say: on, off, or somewhere else, also while the agent runs.

Owned by `agent.app.service.service`. The page is for people: where it cannot
be served, that is told once, and nothing else stops. What is shown is read from the engine's snapshot, without its
lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.app.reporters import Reporters
from agent.engine.engine import Engine
from agent.errors import HostError
from agent.host.cgroups import Cgroups
from agent.observe.health import Health
from agent.observe.logs import LOG
from agent.observe.page.recent import Recent
from agent.settings.model import Page

if TYPE_CHECKING:
    from agent.app.page.values import PageInput
    from agent.observe.page.server import PageServer


class Values:
    """What is made of a `PageInput`; with a `look` it is an `agent.observe.page.current.PageSource`."""

    def node(self, seen: PageInput) -> dict[str, Any]:
        """See PageSource."""
        from agent.app.page.values import node_value  # noqa: PLC0415 - the agent starts without what only readers need

        return node_value(seen)

    def pods(self, seen: PageInput) -> list[dict[str, Any]]:
        """See PageSource."""
        from agent.app.page.values import pods_value  # noqa: PLC0415 - as above

        return pods_value(seen)

    def explanation(self, seen: PageInput, uid: str) -> dict[str, Any] | None:
        """See PageSource."""
        from agent.app.page.values import explanation_value  # noqa: PLC0415 - as above

        return explanation_value(seen, uid)

    def picture(self, seen: PageInput, *, full: bool, bare: bool) -> str:
        """See PageSource."""
        from agent.observe.drawing import draw  # noqa: PLC0415 - as above

        node = seen.snapshot.node
        return draw(node.machine, seen.snapshot.shown, reserved=node.reserved, full=full, bare=bare, rules=node.rules)


@dataclass(frozen=True, kw_only=True)
class EngineSource(Values):
    """Looks at the engine, as far as that needs no lock.

    Attributes:
        name: of the node.
        engine, cgroups, health, recent: what is looked at.
        wrong: manifests of the served folder that are not served, and why.
    """

    name: str
    engine: Engine
    cgroups: Cgroups
    health: Health
    recent: Recent
    wrong: Callable[[], Sequence[object]] = tuple

    def look(self) -> PageInput:
        """See PageSource."""
        from agent.app.page.values import PageInput  # noqa: PLC0415 - as above

        engine = self.engine
        ready, missing = self.health.ready()
        return PageInput(
            snapshot=engine.snapshot, node_name=self.name, names=engine.names, kubepods=self.cgroups.kubepods,
            missing="" if ready else missing, stopped=tuple(self._stopped()), repairs=self.recent.repairs,
            faults=self.recent.faults, wrong=tuple(map(str, self.wrong())),
        )  # fmt: skip

    def _stopped(self) -> list[str]:
        engine = self.engine
        yields: Mapping[str, str] = dict(engine.snapshot.yields)
        switched = engine.halted or engine.snapshot.switches.observe_only
        return [
            *(["the settings or the Node's annotation say so"] if switched else []),
            *(text for _, text in sorted(yields.items())),
        ]


class NodePage:
    """The page, or none.

    Args:
        source: what it shows.

    Attributes:
        address: where it is, "" where it is not.
    """

    def __init__(self, source: EngineSource) -> None:
        self._source = source
        self._server: PageServer | None = None
        self._settings: Page | None = None
        self.address = ""

    @classmethod
    def of(
        cls, name: str, engine: Engine, cgroups: Cgroups, health: Health, reporters: Reporters,
        wrong: Callable[[], Sequence[object]] = tuple,
    ) -> NodePage:  # fmt: skip
        """The page of a node; `fan` tells it what is repaired and what goes wrong, from now on."""
        recent = Recent()
        reporters.add(recent)
        return cls(EngineSource(name=name, engine=engine, cgroups=cgroups, health=health, recent=recent, wrong=wrong))

    def follow(self, settings: Page) -> None:
        """Serve as these settings say. Called again and again: a port that was taken is retried, reported once."""
        if settings == self._settings and (self._server is not None or not settings.enabled):
            return
        again = settings == self._settings
        self.close()
        self._settings = settings
        if not settings.enabled:
            return
        from agent.observe.page.server import PageServer  # noqa: PLC0415 - as above

        try:
            self._server = PageServer(settings.address, settings.port, self._source, settings.hosts)
        except HostError as error:
            if not again:
                LOG.warning("the node page is not served: %s", error)
            return
        self.address = self._server.address
        LOG.info("serving the node page", extra={"facts": {"address": self.address}})

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
        self._server = None
        self._settings = None
        self.address = ""
