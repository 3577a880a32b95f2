"""The tree of faults. A refusal of a pod is not here: it is a value (`agent.model.outcome.Refused`).

    NumalignError
      MalformedError              a text that does not follow its format (a set, a quantity, a manifest field)
        BadPodError(field)        a pod that cannot be understood; names the field
        BadDocumentError(line)    a text that is no YAML, or asks for more than is read
        BadInputError(sentences)  files of which several things may be wrong; each is a sentence
      SettingsError(key)          a setting that is unknown or impossible; names the key and the remedy; exit code 2
      HostError(path)             this node's files
        SysfsMissingError         a file that discovery cannot do without is not there
        SysfsMalformedError       a file is there and says something that cannot be
      CheckpointError(path)       the saved ledger
        CheckpointCorruptError    truncated, bit-flipped, not ours
        CheckpointTooNewError     written by a newer version
        CheckpointForeignError    of another machine
        CheckpointUnwritableError the disk refuses: nothing new may be granted
        AnotherAgentError         the lock is held: two agents on one node
      SummaryError                what a node published for decisions elsewhere
        NewerSummaryError         of a newer version
      RuntimeLinkError            the container runtime or the kubelet spoke wrongly, or not at all
      SandboxRefused              no fault: how a pod is kept from starting, said to the runtime
      KubeError(status)           the API server refused; the client's error is the cause
      UnscopedReadError           a read of pods beyond this node, or a write, stopped before it left: a bug of ours
      InvariantError              a bug of ours: what core.invariants found; never caught but by the top

Every text says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class NumalignError(Exception):
    """Any fault of this program's own tree."""


class MalformedError(NumalignError, ValueError):
    """A text that does not follow its format."""


class BadPodError(MalformedError):
    """A pod that cannot be understood."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class BadDocumentError(MalformedError):
    """A text that is no YAML, or that asks for more than is read; line 0 where none can be named."""

    def __init__(self, why: str, line: int = 0, context: str = "") -> None:
        super().__init__(f"is not YAML{f' in line {line}' if line else ''}: {why}")
        self.why = why
        self.line = line
        self.context = context


class BadInputError(MalformedError):
    """Several things may be wrong with the input; each is a sentence."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = tuple(sentences)


class SettingsError(NumalignError):
    """A setting that is unknown or impossible."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}" if key else why)
        self.key = key


class HostError(NumalignError):
    """Something about this node's files."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class SysfsMissingError(HostError):
    """A file that discovery cannot do without is not there."""


class SysfsMalformedError(HostError):
    """A file says something that cannot be."""


class CheckpointError(HostError):
    """Something about the saved ledger."""


class CheckpointCorruptError(CheckpointError):
    """Truncated, bit-flipped, or not ours."""


class CheckpointTooNewError(CheckpointError):
    """Written by a newer version of numalign."""


class CheckpointForeignError(CheckpointError):
    """Written on another machine."""


class CheckpointUnwritableError(CheckpointError):
    """The disk refuses: nothing new may be granted."""


class AnotherAgentError(CheckpointError):
    """Another agent holds the lock of this node."""


class SummaryError(NumalignError):
    """What a node published for decisions elsewhere cannot be read: damaged, too large, or of a newer version."""


class NewerSummaryError(SummaryError):
    """It is of a newer version."""


class RuntimeLinkError(NumalignError):
    """The container runtime or the kubelet spoke wrongly, or not at all."""


class SandboxRefused(NumalignError):  # noqa: N818 - not a fault: the way to say no to the runtime
    """Raised by a handler to keep a pod from starting; the text reaches `kubectl describe pod`."""


class KubeError(NumalignError):
    """The API server refused."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"API server: {status} {why}" if status else f"API server: {why}")
        self.status, self.why = status, why


class LeaseLostError(NumalignError):
    """Another replica leads: this one ends, so that two never write."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease {name} is lost: another replica leads, or the API server did not answer in time")


class UnscopedReadError(NumalignError):
    """A read of pods without this node's selector, or a write: a bug, stopped before it left."""


class InvariantError(NumalignError):
    """A rule that never breaks was broken: a bug of ours."""
