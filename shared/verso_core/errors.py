"""Every error Verso raises on purpose, in one tree.

    VersoError
    ├── RequestInvalid                 what the caller sent cannot be accepted
    │   ├── TextNotEncodable           ├── TextTooLarge        ├── DuplicateId
    │   ├── IdInvalid                  ├── VectorInvalid       ├── MetadataInvalid
    │   ├── BodyTooLarge               ├── IdempotencyConflict ├── Unauthorized
    │   ├── SpaceMismatch              ├── QuestionTooLong     ├── TrainingDataInvalid
    │   ├── DocumentsRefused           ├── EncodingUnsupported ├── BatchEmpty
    │   ├── KindUnsupported
    │   │   └── PartitionedUnsupported
    │   └── FileUnreadable             no text can be read from a file
    │       ├── FileUnsupported        ├── FileEncrypted       ├── FileWithoutText
    │       └── FileTooLarge
    ├── MethodNotAllowed
    ├── Forbidden                      a known caller may not do this
    ├── NotFound
    │   ├── CollectionUnknown          ├── DocumentUnknown     ├── JobUnknown
    │   ├── HeadUnknown                ├── WebhookUnknown      ├── ModelUnknown
    │   └── KeyUnknown
    ├── CollectionExists               ├── LabelsChanged       ├── MigrationRefused
    ├── DocumentChanged                ├── SourceMoved
    ├── RecordCorrupt                  stored bytes do not give the text back
    │   └── PatchCorrupt               a patch that is not one
    ├── ArtifactInvalid                an artifact folder that must not be served
    │   └── HeadInvalid                a head's folder that must not be served
    ├── PartitionMissing               a partition that its ledger no longer has
    ├── VectorsDamaged                 vectors of a collection that are lost or damaged
    ├── BackupInvalid                  a backup folder that must not be restored
    ├── FrameInvalid                   bytes between processes that are not a frame
    ├── ResultLost                     the file of a large result is gone or damaged
    ├── NotInstalled                   what is optional is not installed here
    ├── JobEnded
    │   ├── DeadlineExpired            ├── Cancelled           └── AttemptsExhausted
    └── Unavailable                    try again later
        ├── QueueFull                  ├── LedgerUnavailable   ├── VectorsUnavailable
        ├── EngineUnavailable          ├── NotReady            ├── DiskFull
        ├── DurabilityMissing          ├── CollectionBusy      ├── TrainerUnavailable
        ├── ResultsUnavailable         ├── LedgerBehind        ├── LedgerMisnamed
        └── ObjectsUnavailable

An error has a ``code``, says whether trying again can help (``retryable``), and has a message that
states what was expected and what came. The code is the name of its class in snake case and part of
the API: a class is never renamed. Errors know nothing of HTTP; one table in the gateway maps codes
to statuses. :func:`error_body` and :func:`from_body` carry an error across a process boundary
without losing its class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict


class ErrorBody(TypedDict):
    """An error as JSON: in a frame, in a result item and in a problem+json document."""

    code: str
    detail: str
    retryable: bool


class VersoError(Exception):
    """Raised when Verso detects a fault itself; the root of the tree, never raised as such."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestInvalid(VersoError):
    """Raised when a request or one of its items cannot be accepted."""


class TextNotEncodable(RequestInvalid):
    """Raised when a JSON string holds lone surrogates and so cannot be encoded as UTF-8."""


class TextTooLarge(RequestInvalid):
    """Raised when a text has more bytes than the platform accepts."""


class DuplicateId(RequestInvalid):
    """Raised when the id of a document or question occurs twice in one request."""


class IdInvalid(RequestInvalid):
    """Raised when a document id or collection name breaks the naming rules."""


class VectorInvalid(RequestInvalid):
    """Raised when a vector has the wrong dimension or holds NaN or infinity."""


class MetadataInvalid(RequestInvalid):
    """Raised when metadata holds what it cannot, or passes its limits."""


class BatchEmpty(RequestInvalid):
    """Raised when a batch holds no text."""


class BodyTooLarge(RequestInvalid):
    """Raised when a request body is larger than the limit."""


class IdempotencyConflict(RequestInvalid):
    """Raised when an idempotency key is reused with another body."""


class Unauthorized(RequestInvalid):
    """Raised when an API key or a session is missing, unknown or expired."""


class SpaceMismatch(RequestInvalid):
    """Raised when a head is asked to read vectors of another space than its own."""


class QuestionTooLong(RequestInvalid):
    """Raised when a question leaves no room for its context in the head's window."""


class TrainingDataInvalid(RequestInvalid):
    """Raised when a head cannot be trained on the given rows, questions or pairs."""


class DocumentsRefused(RequestInvalid):
    """Raised when every document of an ingest was refused, so that no job was made.

    Attributes:
        intaken: the counts and first reasons, as JSON; empty where they are not known.
    """

    def __init__(self, detail: str, *, intaken: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.intaken = {} if intaken is None else dict(intaken)


class EncodingUnsupported(RequestInvalid):
    """Raised when a request body has a content coding other than gzip, deflate and zstd."""


class KindUnsupported(RequestInvalid):
    """Raised when a collection is asked for what its kind cannot do."""


class PartitionedUnsupported(KindUnsupported):
    """Raised when a collection of several partitions is asked for what needs it on one ledger."""


class FileUnreadable(RequestInvalid):
    """Raised when no text can be read from a file: it is broken, or not what it is said to be."""


class FileUnsupported(FileUnreadable):
    """Raised when a file is in no format that text is read from."""


class FileEncrypted(FileUnreadable):
    """Raised when a file can be read with a password only."""


class FileWithoutText(FileUnreadable):
    """Raised when a file has no text, such as scanned pages."""


class FileTooLarge(FileUnreadable):
    """Raised when a file, or reading it, takes more bytes, memory or time than it may."""


class NotFound(VersoError):
    """Raised when something that a request names does not exist."""


class MethodNotAllowed(VersoError):
    """Raised when a path exists but does not support the method of the request."""


class Forbidden(VersoError):
    """Raised when an API key lacks a scope, or a request may not come from where it comes from."""

    code = "forbidden"


class CollectionUnknown(NotFound):
    """Raised when no collection has the given name, or none that the caller may see."""


class DocumentUnknown(NotFound):
    """Raised when no live document or record has the given id."""


class JobUnknown(NotFound):
    """Raised when no job has the given id, or the job has expired."""


class WebhookUnknown(NotFound):
    """Raised when no webhook of the caller has the given id."""


class ModelUnknown(NotFound):
    """Raised when a request names a model that is not served; the detail names those that are."""


class HeadUnknown(NotFound):
    """Raised when no head has the given name, or none does what was requested."""


class KeyUnknown(NotFound):
    """Raised when a file of API keys has no key of the given name or id."""

    code = "key_unknown"


class CollectionExists(VersoError):
    """Raised when a collection is created again with other settings."""


class LabelsChanged(VersoError):
    """Raised when a head is trained for other labels than its stable version has."""


class DocumentChanged(VersoError):
    """Raised when a document was written since its metadata was read for a change."""

    code = "document_changed"


class SourceMoved(VersoError):
    """Raised when a source of lines was accepted up to another place than a request says.

    Attributes:
        position: that place.
    """

    def __init__(self, detail: str, *, position: int = 0) -> None:
        super().__init__(detail)
        self.position = position


class MigrationRefused(VersoError):
    """Raised when a collection cannot be migrated or moved as requested in its present state."""


class RecordCorrupt(VersoError):
    """Raised when the text decoded from a record does not match the record's checksum."""


class PatchCorrupt(RecordCorrupt):
    """Raised when the bytes of an entry, record or patch do not follow their format."""


class ArtifactInvalid(VersoError):
    """Raised when an artifact is incomplete, altered, or fails its golden samples."""


class HeadInvalid(ArtifactInvalid):
    """Raised when a head's folder is incomplete or altered, or fails its golden samples."""


class PartitionMissing(VersoError):
    """Raised when lines of a partition are asked for that its ledger no longer has."""


class VectorsDamaged(VersoError):
    """Raised when the vectors of a collection are lost or damaged, or are being put again."""


class BackupInvalid(VersoError):
    """Raised when a backup is incomplete or altered, or cannot be restored to its target."""


class FrameInvalid(VersoError):
    """Raised when bytes that one process sent to another are not a frame."""


class ResultLost(VersoError):
    """Raised when the file of a large result is missing or differs from what was written."""


class NotInstalled(VersoError):
    """Raised when something optional is asked for whose libraries are not installed."""


class JobEnded(VersoError):
    """Raised when a job reached a terminal state other than success."""


class DeadlineExpired(JobEnded):
    """Raised when a job's deadline passed before it could run."""


class Cancelled(JobEnded):
    """Raised when a job was cancelled by its owner."""


class AttemptsExhausted(JobEnded):
    """Raised when a job crashed or failed too often and is now a dead letter."""


class Unavailable(VersoError):
    """Raised when a part of the platform cannot serve now but may do so later.

    ``timed_out``: it was asked and took too long, so asking again would probably cost as much.
    """

    retryable = True
    timed_out: bool = False


class QueueFull(Unavailable):
    """Raised when more work is queued than may be held; says when to come back."""

    def __init__(self, detail: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class LedgerUnavailable(Unavailable):
    """Raised when Redis does not answer or refuses to write."""


class VectorsUnavailable(Unavailable):
    """Raised when the vector store does not answer."""


class EngineUnavailable(Unavailable):
    """Raised when the engine process died or does not answer."""


class NotReady(Unavailable):
    """Raised when no worker has completed real work recently."""


class DiskFull(Unavailable):
    """Raised when a store has no room left and refuses a write before it starts."""


class TrainerUnavailable(Unavailable):
    """Raised when no trainer is running."""


class DurabilityMissing(Unavailable):
    """Raised when a store is not configured to keep what it acknowledges."""


class LedgerMisnamed(Unavailable):
    """Raised when the address of a ledger leads to another ledger of the platform."""


class LedgerBehind(Unavailable):
    """Raised when the ledger is older than what it has acknowledged and is read-only."""

    def __init__(
        self,
        detail: str = "the ledger is older than what it has acknowledged: nothing is written until "
        "its operator puts a newer one back or goes on with this one (`verso ledger`)",
    ) -> None:
        super().__init__(detail)


class CollectionBusy(Unavailable):
    """Raised when a backup, a migration or a move needs a collection to stay unchanged for now."""


class ResultsUnavailable(Unavailable):
    """Raised when the folder of large results cannot be read or written."""


class ObjectsUnavailable(Unavailable):
    """Raised when the object store of cold storage cannot be read or written."""


def _tree(cls: type[VersoError]) -> dict[str, type[VersoError]]:
    """Return a class and all below it by code, and set the codes of those below."""
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        child.code = re.sub(r"(?<!^)(?=[A-Z])", "_", child.__name__).lower()
        found |= _tree(child)
    return found


CLASSES: dict[str, type[VersoError]] = _tree(VersoError)
"""Every class of the tree by its code."""


def error_body(error: BaseException) -> ErrorBody:
    """Return an error as JSON; of a foreign exception its class name only, never its message.

    A foreign message may quote a text or a secret, which belongs neither in a result nor in a log.
    """
    if isinstance(error, VersoError):
        return {"code": error.code, "detail": error.detail, "retryable": error.retryable}
    return {"code": "internal", "detail": type(error).__name__, "retryable": False}


def from_body(body: ErrorBody) -> VersoError:
    """Return the error that :func:`error_body` described; of an unknown code, a VersoError."""
    return CLASSES.get(body["code"], VersoError)(body["detail"])
