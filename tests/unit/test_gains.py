"""agent.forecast.gains: who would have CPUs of its own, and how many fewer CPUs than a Guaranteed pod takes."""

from __future__ import annotations

from dataclasses import replace

from agent.forecast.gains import gains, sentences
from agent.model.exclusive import Selection
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import Rules
from tests.world.pods import pod

AUTO = Rules(exclusive=Selection(auto=True))


def part(name: str, request: int, limit: int) -> Container:
    """A container by its thousandths of a CPU; 0 for no limit."""
    return Container(name, requests={"cpu": request}, limits={"cpu": limit} if limit else {})


MYSQL = pod("mysql", part("mysql", 8000, 8000), part("backup", 1000, 8000), part("exporter", 1000, 6000))
PROXIED = pod("web", part("app", 2000, 2000), part("istio-proxy", 1000, 1000), part("log", 50, 0))
PLAIN = pod("plain", part("app", 500, 1000))
PINNED = pod("pinned", part("app", 2000, 2000))
PODS: tuple[Pod, ...] = (*(replace(each, qos=Qos.BURSTABLE) for each in (MYSQL, PROXIED, PLAIN)), PINNED)


def test_mysql_takes_10_cpus_instead_of_22() -> None:
    """The database has 8 of its own; as a Guaranteed pod its helpers would have to request their limits, too."""
    mysql, web = gains(Rules(), AUTO, PODS, {})
    assert (mysql.containers, mysql.requested, mysql.guaranteed) == ({"mysql": 8}, 10_000, 22_000)
    assert (web.containers, web.singles) == ({"app": 2, "istio-proxy": 1}, ("istio-proxy",))
    assert (web.requested, web.guaranteed) == (3050, 3050)


def test_it_is_said_in_sentences() -> None:
    """Who gains, who is refused, what it takes, and who would have it unasked; or that there is nobody."""
    words = list(sentences(gains(Rules(), AUTO, PODS, {}), "auto"))
    assert words[0] == (
        "exclusive auto: 2 pods would gain CPUs of their own: default/mysql (mysql: 8) and "
        "default/web (app: 2, istio-proxy: 1)"
    )
    assert words[1].startswith("they request 13050m CPUs; made Guaranteed, they would take 25050m CPUs: 12 more")
    assert words[2] == "containers of one whole CPU, which would have it too: default/web istio-proxy"
    refused = list(sentences(gains(Rules(), AUTO, PODS, {"web": "no room"}), "auto"))
    assert refused[1] == "1 pod would be refused: default/web"
    assert list(sentences(gains(AUTO, AUTO, PODS, {}), "auto")) == [
        "exclusive auto: no container would gain CPUs of its own"
    ]


def test_only_so_many_are_named() -> None:
    """A node full of pods gives one line, not a page."""
    many = [replace(PODS[0], uid=f"p{number}", name=f"p{number}") for number in range(30)]
    first = next(sentences(gains(Rules(), AUTO, many, {}), "auto"))
    assert first.endswith("default/p9 (mysql: 8) and 20 more")
