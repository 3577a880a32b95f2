"""A sequence file: a machine, the managers' settings, and steps with what must come of each.

    about: One sentence that says what it shows.
    machine: lab                              # of tests/referee/shapes.py; lab when left out
    config: {topologyManagerPolicy: restricted}   # KubeletConfiguration, over shapes.BASE
    devices: {lab.example.com/nic: {nic0: 1}}     # resource -> device id -> NUMA node
    since: 38                                 # the first kubelet that does so; until: 37 is the last one
    tags: [core]                              # core: decided on real nodes in every run of the lab; run: started
    steps:
      - create: web                           # a pod; a container's short form sets requests and limits alike
        init: {prep: {cpu: 1, memory: 32Mi}, proxy: {cpu: 1, memory: 32Mi, sidecar: true}}
        containers: {app: {cpu: 2, memory: 64Mi}, log: {requests: {cpu: 100m}}}
        resources: {cpu: 4, memory: 256Mi}    # of the pod as a whole, if it has any
        expect:                               # every container; cpus: exclusive ones or shared, mems: bound or any
          prep: {cpus: 2, mems: 0}
          app: {cpus: 2-3, mems: 0, quota: max}   # quota: microseconds of a period, max, or not looked at
        pod quota: max                        # of the pod's own cgroup
        shared: 0-1,4-15                      # the shared pool after the step; empty without a CPU policy
      - create: big
        containers: {app: {cpu: 20, memory: 64Mi}}
        refused: TopologyAffinityError        # the reason
        says: not enough                      # a part of the message, if that matters
        shared: 0-1,4-15
      - delete: web                           # or finish: web (its processes end), finish: web/log, restart: node
        shared: 0-15

`read` checks a file against this schema; every mistake is told as one sentence with the place in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_serializer,
    model_validator,
)

from agent.errors import MalformedError
from agent.model.idset import IdSet
from tests.referee.shapes import BASE, MACHINES
from tests.world.manifests import manifest

FOLDER = Path(__file__).parents[1] / "lab" / "sequences"
SHARED, ANY = "shared", "any"
REASONS = ("TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError", "EmptyPodSharedPoolError")
RESTART = "node"


class BadSequenceError(Exception):
    """A file that is no sequence; the text names the file, the place in it and what is wrong."""


def _words(*allowed: str) -> Any:  # noqa: ANN401 - a pydantic validator
    """A set of ids in list format, or one of these words."""

    def check(value: object) -> str:
        text = str(value)
        if text in allowed:
            return text
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{text!r} is neither a set like 0-3,8 nor {' nor '.join(allowed) or 'empty'}")  # noqa: TRY004 - pydantic wants a ValueError
        try:
            return str(IdSet.parse(text))
        except MalformedError as error:
            raise ValueError(f"{error}; write a set like 0-3,8" + "".join(f" or {w}" for w in allowed)) from error

    return BeforeValidator(check)


Quantity = Annotated[str, BeforeValidator(str)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")]
Cpus = Annotated[str, _words(SHARED)]
Mems = Annotated[str, _words(ANY)]
Pool = Annotated[str, _words()]


class Part(BaseModel):
    """Frozen, and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Resources(Part):
    """What a container (or a pod) asks for; the short form means both."""

    requests: Mapping[str, Quantity] = Field(default_factory=dict)
    limits: Mapping[str, Quantity] = Field(default_factory=dict)
    sidecar: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: object) -> object:
        if not isinstance(given, Mapping) or {"requests", "limits"} & set(given):
            return given
        both = {key: value for key, value in given.items() if key != "sidecar"}
        return {"requests": both, "limits": both, "sidecar": given.get("sidecar", False)}

    @model_serializer
    def _shortest(self) -> dict[str, Any]:
        body = dict(self.limits) if self.requests == self.limits else self.body()
        return {**body, "sidecar": True} if self.sidecar else body

    def body(self) -> dict[str, dict[str, str]]:
        parts = {"requests": dict(self.requests), "limits": dict(self.limits)}
        return {key: value for key, value in parts.items() if value}


class Expected(Part):
    """What one container must have."""

    cpus: Cpus
    mems: Mems
    quota: Quantity | None = None


class Step(Part):
    """One thing that happens, and what must come of it."""

    create: Name = ""
    delete: Name = ""
    finish: Annotated[str, Field(pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)?$")] = ""
    restart: Annotated[str, Field(pattern=f"^{RESTART}$")] = ""
    init: Mapping[Name, Resources] = Field(default_factory=dict)
    containers: Mapping[Name, Resources] = Field(default_factory=dict)
    resources: Resources | None = None
    expect: Mapping[Name, Expected] | None = None
    pod_quota: Annotated[Quantity | None, Field(alias="pod quota")] = None
    refused: str = ""
    says: str = ""
    shared: Pool

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        acts = [key for key in ("create", "delete", "finish", "restart") if getattr(self, key)]
        if len(acts) != 1:
            raise ValueError(
                f"does one of create, delete, finish, restart; this one has {' and '.join(acts) or 'none'}"
            )
        if self.create:
            self._created()
        elif self.containers or self.init or self.expect or self.refused or self.says or self.pod_quota:
            raise ValueError(f"{acts[0]}: takes shared only; what it makes of a pod stands at its create")
        return self

    def _created(self) -> None:
        if not self.containers:
            raise ValueError("create: a pod needs containers")
        if (self.expect is None) == (not self.refused):
            raise ValueError("create: needs either expect (a line for every container) or refused (the reason)")
        if self.refused and self.refused not in REASONS:
            raise ValueError(f"refused: {self.refused} is no reason of the managers; known: {', '.join(REASONS)}")
        if self.says and not self.refused:
            raise ValueError("says: is of a refusal")
        if both := sorted(set(self.init) & set(self.containers)):
            raise ValueError(f"{', '.join(both)}: the name of an init container and of a container")
        if self.expect is not None and set(self.expect) != {*self.init, *self.containers}:
            odd = sorted(set(self.expect) ^ {*self.init, *self.containers})
            raise ValueError(f"expect: has a line for every container and for nothing else; see {', '.join(odd)}")

    @property
    def act(self) -> str:
        return " ".join(
            f"{key} {value}" for key in ("create", "delete", "finish", "restart") if (value := getattr(self, key))
        )


class Sequence(Part):
    """A whole file."""

    name: str
    about: Annotated[str, Field(min_length=10)]
    machine: str = "lab"
    config: Mapping[str, Any] = Field(default_factory=dict)
    kubelet: Annotated[
        Mapping[str, Any], Field(description="KubeletConfiguration of both nodes that no manager reads.")
    ] = Field(default_factory=dict)
    devices: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    since: Annotated[int, Field(description="The first minor of the kubelet that does so; 0: every one.")] = 0
    until: Annotated[int, Field(description="The last minor; 0: there is none.")] = 0
    tags: tuple[str, ...] = ()
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if self.machine not in MACHINES:
            raise ValueError(f"machine: {self.machine} is not one of {', '.join(MACHINES)}")
        if same := [key for key, value in self.config.items() if key in BASE and BASE[key] == value]:
            raise ValueError(f"config: {', '.join(same)} is so anyway (shapes.BASE); leave it out")
        there: dict[str, Step] = {}
        for number, step in enumerate(self.steps, 1):
            pod, _, container = (step.create or step.delete or step.finish).partition("/")
            if step.create and pod in there:
                raise ValueError(f"step {number}: there is a pod {pod} already")
            if not step.create and not step.restart and pod not in there:
                raise ValueError(f"step {number}: {step.act}: no such pod was admitted, or it is gone")
            if container and container not in there[pod].containers:
                raise ValueError(f"step {number}: {step.act}: the pod has no such container")
            if step.create and not step.refused:
                there[pod] = step
            elif step.delete or (step.finish and not container):
                del there[pod]
        return self


def manifest_of(step: Step, *, created: int = 0) -> dict[str, Any]:
    """The pod of a step that creates, as the API server keeps it; name and uid are the step's."""
    made = {
        name: {"name": name, "image": "example.com/x", "resources": each.body()}
        | ({"restartPolicy": "Always"} if each.sidecar else {})
        for name, each in (*step.init.items(), *step.containers.items())
    }
    inits = [made[name] for name in step.init]
    body = manifest(step.create, *(made[name] for name in step.containers), inits=inits, created=created)
    return {**body, "spec": body["spec"] | ({"resources": step.resources.body()} if step.resources else {})}


def read(path: Path) -> Sequence:
    """A file as a sequence; raises BadSequenceError."""
    try:
        given = yaml.load(path.read_text("utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadSequenceError(f"{path}: cannot be read: {error}") from error
    if not isinstance(given, dict):
        raise BadSequenceError(f"{path}: is no mapping; it starts with about: and has steps:")
    try:
        return Sequence.model_validate({**given, "name": path.stem})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
        raise BadSequenceError(
            f"{path}: {place or 'file'}: {first['msg'].removeprefix('Value error, ')}{more}"
        ) from error


def text_of(sequence: Sequence) -> str:
    """A sequence as a file."""
    body = sequence.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=116)


def read_all(folder: Path = FOLDER, minor: int = 0) -> tuple[Sequence, ...]:
    """All sequences of a folder by name, or those of kubelets of a minor; raises BadSequenceError."""
    found = tuple(read(path) for path in sorted(folder.glob("*.yaml")))
    if not found:
        raise BadSequenceError(f"{folder}: holds no sequence (*.yaml)")
    return tuple(each for each in found if not minor or each.since <= minor <= (each.until or minor))


class _Loader(yaml.SafeLoader):
    """YAML whose only numbers are plain decimal ones, and in which a key may not be given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - of yaml
        """A mapping; raises ConstructorError."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := sorted({str(key) for key in keys if keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {', '.join(twice)}", node.start_mark)
        return super().construct_mapping(node, deep=deep)
