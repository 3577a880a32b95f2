"""Which containers of a pod ask for CPUs of their own, where its QoS class alone does not say it. Pure.

    auto             every container whose CPU request is whole, 1 or more, and equal to its limit
    auto,-NAME,...   the same, but for those named
    NAME,...         of these containers those named
    none             none of them

As the annotation numalign.io/exclusive of a pod or of its namespace, or as the node's setting (exclusiveContainers),
which holds where neither says anything. A Guaranteed pod's containers have it without asking, as in the kubelet; a
pod or its namespace can only take it from some of them. Pod-level resources are divided by the kubelet's rules alone.

Used by `agent.core.request.amounts`, which counts the CPUs, and by the reports on what came of it.
"""

from __future__ import annotations

from agent.model.exclusive import ALLOWED, NO_CONTAINER, Selection, parsed
from agent.model.fields import words_in
from agent.model.likely import likely
from agent.model.notes import PREFIX, longest
from agent.model.pod import Container, Pod, Qos
from agent.model.quantity import is_whole
from agent.model.rules import Rules

EXCLUSIVE = f"{PREFIX}exclusive"
SETTING = "exclusiveContainers"
_YES = frozenset({"true", "yes", "on", "1", "all", "*", "enabled"})
_NO = frozenset({"false", "no", "off", "0", "disabled"})
THEN = "the rest of it is followed, and otherwise the pod runs as without it"
"""What becomes of a wish with which something is wrong."""


def selection_of(pod: Pod, rules: Rules) -> Selection:
    """What holds for a pod: its own wish, or its namespace's; else the node's setting."""
    own = _own(pod)
    return rules.exclusive if own is None else own


def _own(pod: Pod) -> Selection | None:
    """A pod's own wish, or its namespace's; None where there is none that can be read."""
    text = pod.annotations.get(EXCLUSIVE)
    return None if text is None or too_long(text) else parsed(text)


def too_long(text: str) -> bool:
    """Whether only the beginning of a list of containers is kept, which may read as something else."""
    return len(text) > longest(EXCLUSIVE)


def requested(pod: Pod, rules: Rules) -> bool:
    """Whether a pod asks for what only this annotation or setting gives: CPUs of a pod that is not Guaranteed."""
    return pod.qos is not Qos.GUARANTEED and selection_of(pod, rules) != NO_CONTAINER


def may_request(pod: Pod, rules: Rules) -> bool:
    """Whether pods of its namespace may (exclusiveNamespaces)."""
    return "*" in rules.exclusive_namespaces or pod.namespace in rules.exclusive_namespaces


def is_fixed(container: Container) -> bool:
    """Whether it asks for whole CPUs, at least one, and may use no more."""
    milli = container.requests.get("cpu", 0)
    return milli > 0 and is_whole(milli) and container.limits.get("cpu", 0) == milli


def takes_part(pod: Pod, container: Container, rules: Rules) -> bool:
    """Whether a container's whole CPUs are to be its own: by the pod's QoS class, or since it asks for that."""
    if pod.qos is Qos.GUARANTEED:
        own = None if pod.pod_level else _own(pod)
        return own is None or own.takes(container.name)
    if pod.pod_level or not is_fixed(container) or not may_request(pod, rules):
        return False
    return selection_of(pod, rules).takes(container.name)


def memory_takes_part(pod: Pod, container: Container, rules: Rules) -> bool:
    """Whether the Memory Manager serves it: all of a Guaranteed pod; else with CPUs of its own, and fixed memory."""
    if pod.qos is Qos.GUARANTEED:
        return True
    memory = container.requests.get("memory", 0)
    return memory > 0 and container.limits.get("memory", 0) == memory and takes_part(pod, container, rules)


def problem(pod: Pod, rules: Rules) -> str:
    """Why a pod's own wish, or its namespace's, cannot be followed, or not all of it; "" where it can."""
    if EXCLUSIVE not in pod.annotations:
        return ""
    if too_long(pod.annotations[EXCLUSIVE]):
        return f"goes on beyond {longest(EXCLUSIVE)} characters"
    wish = _own(pod)
    if wish is None:
        return f"is not one of {ALLOWED}"
    return _unmet(pod, wish, rules) if wish != NO_CONTAINER else ""


def _unmet(pod: Pod, wish: Selection, rules: Rules) -> str:
    if pod.pod_level:
        return "cannot be followed: the pod has pod-level resources, which the kubelet's own rules divide"
    if pod.qos is not Qos.GUARANTEED and not may_request(pod, rules):
        return f"is not for pods of namespace {pod.namespace} (exclusiveNamespaces in numalign's settings)"
    if wish.auto:
        return _none_fits(pod, rules)
    there = {each.name: each for each in pod.containers}
    lost = sorted(wish.names - there.keys())
    if lost:
        return f"names {lost[0]}, which is no container of the pod ({', '.join(there)[:200]})"
    loose = next((each for each in pod.containers if each.name in wish.names and not is_fixed(each)), None)
    return f"names {loose.name}: {why_loose(loose)}" if loose else ""


def meant(pod: Pod, annotation: str, *words: str) -> str:
    """What a list of containers that names one that is not there was probably meant to be; "" for unknown.

    Args:
        pod: it.
        annotation: whose value is the list.
        words: what it may say beside names: for all, and for none of them.
    """
    names = [each.name for each in pod.containers]
    for word in words_in(pod.annotations.get(annotation, "")[: longest(annotation)]):
        if word.lower() in _YES:
            return ", or ".join((*words[:1], "the container's name"))
        if word.lower() in _NO:
            return words[1] if len(words) > 1 else "no annotation"
        found = likely(word.removeprefix("-"), (*names, *words))
        if found and found != word.removeprefix("-"):
            return found
    return ""


def _none_fits(pod: Pod, rules: Rules) -> str:
    """Where `auto` finds no container, name one that asks for whole CPUs without an equal limit."""
    if any(takes_part(pod, each, rules) for each in pod.containers):
        return ""
    for each in pod.containers:
        milli = each.requests.get("cpu", 0)
        if milli and is_whole(milli) and why_loose(each):
            return f"finds no container: {each.name}: {why_loose(each)}"
    return ""


def note(pod: Pod, rules: Rules, *, holds: bool) -> str:
    """What is to be said of a pod that asks, beside what it holds: one sentence without an end; "" for none.

    Args:
        pod: it.
        rules: the node's.
        holds: it has CPUs of its own.
    """
    why = problem(pod, rules)
    if why:
        return f"{EXCLUSIVE}: {why}"
    if pod.qos is not Qos.BURSTABLE or not (holds or requested(pod, rules)):
        return ""
    if holds:
        return "the pod stays Burstable: its OOM score and its rank in an eviction are as without"
    most = max(pod.containers, key=lambda each: each.requests.get("cpu", 0))
    why = why_loose(most) or left_out(pod, most, rules)
    return f"no CPUs of its own: {most.name}: {why}" if why else ""


def why_loose(container: Container, *, limit_counts: bool = True) -> str:
    """Why a container cannot have CPUs of its own, as one sentence; "" where it can."""
    milli, limit = container.requests.get("cpu", 0), container.limits.get("cpu", 0)
    if not milli:
        return "it requests no CPU"
    if not is_whole(milli):
        return f"it requests {_cpus(milli)} CPU, and only whole CPUs are given to one container alone"
    if limit_counts and limit != milli:
        bound = f"its limit is {_cpus(limit)}" if limit else "it has no limit"
        return f"it requests {_cpus(milli)} CPU and {bound}; request and limit must be equal"
    return ""


def left_out(pod: Pod, container: Container, rules: Rules) -> str:
    """Why a container that could have CPUs of its own has none: the wish that leaves it out; "" where none does."""
    if takes_part(pod, container, rules):
        return ""
    own = _own(pod)
    if own is not None and not own.auto and own.names and own.names.isdisjoint(each.name for each in pod.containers):
        return f"{EXCLUSIVE} names no container of the pod"
    if own is not None:
        return f"{EXCLUSIVE}: {pod.annotations[EXCLUSIVE]} leaves it out"
    return f"{SETTING}: {rules.exclusive} leaves it out"


def _cpus(milli: int) -> str:
    return str(milli // 1000) if is_whole(milli) else f"{milli}m"
