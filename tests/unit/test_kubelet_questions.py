"""When the kubelet is asked for its configuration: seldom, and soon after a start: never two writers (S10)."""

from __future__ import annotations

from pathlib import Path

from agent.app.cluster.kubelet_questions import SELDOM, SOON, TRIES, KubeletQuestions


def test_it_is_asked_at_the_start_and_then_seldom(tmp_path: Path) -> None:
    """One question, and the next one ten minutes after the answer."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    questions = KubeletQuestions(lambda: str(socket))
    assert questions.due(100.0)
    questions.record(100.0, answered=True)
    assert not questions.due(100.0 + SELDOM - 1)
    assert questions.due(100.0 + SELDOM)


def test_a_kubelet_that_started_anew_is_asked_until_it_answers(tmp_path: Path) -> None:
    """Its socket is another one: the policies may be, too. It does not serve at once."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    questions = KubeletQuestions(lambda: str(socket))
    questions.record(100.0, answered=True)
    socket.unlink()
    assert not questions.due(110.0), "it is down: there is nobody to ask"
    (tmp_path / "new").touch()
    (tmp_path / "new").rename(socket)
    assert questions.due(120.0)
    questions.record(120.0, answered=False)
    assert not questions.due(120.0 + SOON - 1)
    assert questions.due(120.0 + SOON)
    questions.record(140.0, answered=True)
    assert not questions.due(140.0 + SOON)


def test_one_that_must_not_be_asked_is_left_in_peace(tmp_path: Path) -> None:
    """Where RBAC forbids it, a few questions come soon and the others seldom; without a socket it is the same."""
    questions = KubeletQuestions(lambda: "")
    now = 0.0
    for _ in range(TRIES):
        assert questions.due(now)
        questions.record(now, answered=False)
        now += SOON
    assert not questions.due(now)
    assert questions.due(now + SELDOM)
