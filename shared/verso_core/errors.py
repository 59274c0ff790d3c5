"""Every error Verso raises on purpose, in one tree.

    VersoError
    ├── RequestInvalid                 what the caller sent cannot be accepted
    │   ├── TextNotEncodable           ├── TextTooLarge        ├── DuplicateId
    │   ├── IdInvalid                  ├── VectorInvalid       ├── MetadataInvalid
    │   ├── BodyTooLarge               ├── IdempotencyConflict ├── Unauthorized
    │   ├── SpaceMismatch              ├── QuestionTooLong     └── TrainingDataInvalid
    ├── MethodNotAllowed
    ├── NotFound
    │   ├── CollectionUnknown          ├── DocumentUnknown     ├── JobUnknown
    │   ├── HeadUnknown                └── WebhookUnknown
    ├── CollectionExists               ├── LabelsChanged       ├── MigrationRefused
    ├── RecordCorrupt                  stored bytes do not give the text back
    │   └── PatchCorrupt               a patch that is not one
    ├── ArtifactInvalid                an artifact folder that must not be served
    │   └── HeadInvalid                a head's folder that must not be served
    ├── BackupInvalid                  a backup folder that must not be restored
    ├── FrameInvalid                   bytes on an inner wire that are not a frame
    ├── ResultLost                     a result's file that is gone or damaged
    ├── JobEnded
    │   ├── DeadlineExpired            ├── Cancelled           └── AttemptsExhausted
    └── Unavailable                    try again later
        ├── QueueFull                  ├── LedgerUnavailable   ├── VectorsUnavailable
        ├── EngineUnavailable          ├── NotReady            ├── DiskFull
        ├── DurabilityMissing          ├── CollectionBusy      ├── TrainerUnavailable
        ├── ResultsUnavailable         └── LedgerBehind

An error has a stable ``code`` (part of the API: never renamed), says whether trying again can help
(``retryable``), and a message that tells what was expected and what came. It knows nothing of HTTP;
one table in the gateway turns codes into statuses. :func:`error_body` and :func:`from_body` carry
an error across a process boundary without losing its class.
"""

from __future__ import annotations

from typing import ClassVar, TypedDict


class ErrorBody(TypedDict):
    """An error as JSON: on the wire, in a result item and in a problem+json document."""

    code: str
    detail: str
    retryable: bool


class VersoError(Exception):
    """Raised when Verso itself finds a fault; the root of the tree, never raised bare."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestInvalid(VersoError):
    """Raised when a request or one of its items cannot be accepted as it is."""

    code = "request_invalid"


class TextNotEncodable(RequestInvalid):
    """Raised when a JSON string holds lone surrogates and so names no bytes."""

    code = "text_not_encodable"


class TextTooLarge(RequestInvalid):
    """Raised when one text has more bytes than the platform takes."""

    code = "text_too_large"


class DuplicateId(RequestInvalid):
    """Raised when the id of a document or question stands twice in one request."""

    code = "duplicate_id"


class IdInvalid(RequestInvalid):
    """Raised when a document id or collection name breaks the naming rules."""

    code = "id_invalid"


class VectorInvalid(RequestInvalid):
    """Raised when a vector has the wrong dimension or holds NaN or infinity."""

    code = "vector_invalid"


class MetadataInvalid(RequestInvalid):
    """Raised when metadata is not a flat object of scalars within its limits."""

    code = "metadata_invalid"


class BodyTooLarge(RequestInvalid):
    """Raised when a request body passes the size limit."""

    code = "body_too_large"


class IdempotencyConflict(RequestInvalid):
    """Raised when an idempotency key is used again with another body."""

    code = "idempotency_conflict"


class Unauthorized(RequestInvalid):
    """Raised when an API key is missing or unknown."""

    code = "unauthorized"


class SpaceMismatch(RequestInvalid):
    """Raised when a head is asked to read vectors of a space that is not its own."""

    code = "space_mismatch"


class QuestionTooLong(RequestInvalid):
    """Raised when a question leaves no room for its context in the head's window."""

    code = "question_too_long"


class TrainingDataInvalid(RequestInvalid):
    """Raised when labelled rows, questions or pairs cannot be trained on as they are."""

    code = "training_data_invalid"


class NotFound(VersoError):
    """Raised when a named thing does not exist."""

    code = "not_found"


class MethodNotAllowed(VersoError):
    """Raised when a path exists and does not answer the method of the request."""

    code = "method_not_allowed"


class CollectionUnknown(NotFound):
    """Raised when no collection has the given name."""

    code = "collection_unknown"


class DocumentUnknown(NotFound):
    """Raised when no live document or record has the given id."""

    code = "document_unknown"


class JobUnknown(NotFound):
    """Raised when no job has the given id, or it has expired."""

    code = "job_unknown"


class WebhookUnknown(NotFound):
    """Raised when no webhook of the caller has the given id."""

    code = "webhook_unknown"


class HeadUnknown(NotFound):
    """Raised when no head has the given name, or none that does what was asked."""

    code = "head_unknown"


class CollectionExists(VersoError):
    """Raised when a collection is created again with other settings."""

    code = "collection_exists"


class LabelsChanged(VersoError):
    """Raised when a head is trained for other labels than its stable version has."""

    code = "labels_changed"


class MigrationRefused(VersoError):
    """Raised when a collection cannot be migrated as asked, as it stands now."""

    code = "migration_refused"


class RecordCorrupt(VersoError):
    """Raised when a record's stored bytes do not give back the text its checksum names."""

    code = "record_corrupt"


class PatchCorrupt(RecordCorrupt):
    """Raised when the bytes of an entry, record or patch do not follow their format."""

    code = "patch_corrupt"


class ArtifactInvalid(VersoError):
    """Raised when an artifact is incomplete, altered, or fails its golden samples."""

    code = "artifact_invalid"


class HeadInvalid(ArtifactInvalid):
    """Raised when a head's folder is incomplete or altered, or fails its golden samples."""

    code = "head_invalid"


class BackupInvalid(VersoError):
    """Raised when a backup is incomplete or altered, or cannot be restored where it should."""

    code = "backup_invalid"


class FrameInvalid(VersoError):
    """Raised when bytes on an inner wire are not a frame."""

    code = "frame_invalid"


class ResultLost(VersoError):
    """Raised when the file of a large result is gone or is not what was written."""

    code = "result_lost"


class JobEnded(VersoError):
    """Raised when a job reached a terminal state other than success."""

    code = "job_ended"


class DeadlineExpired(JobEnded):
    """Raised when a job's deadline passed before it could run."""

    code = "deadline_expired"


class Cancelled(JobEnded):
    """Raised when a job was cancelled by its owner."""

    code = "cancelled"


class AttemptsExhausted(JobEnded):
    """Raised when a job crashed or failed too often and waits as a dead letter."""

    code = "attempts_exhausted"


class Unavailable(VersoError):
    """Raised when a part of the platform cannot serve now but may later."""

    code = "unavailable"
    retryable = True


class QueueFull(Unavailable):
    """Raised when more work is queued than may be held; says when to come back."""

    code = "queue_full"

    def __init__(self, detail: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class LedgerUnavailable(Unavailable):
    """Raised when Redis does not answer or refuses to write."""

    code = "ledger_unavailable"


class VectorsUnavailable(Unavailable):
    """Raised when the vector store does not answer."""

    code = "vectors_unavailable"


class EngineUnavailable(Unavailable):
    """Raised when the engine process died or does not answer."""

    code = "engine_unavailable"


class NotReady(Unavailable):
    """Raised when no worker has lately done real work."""

    code = "not_ready"


class DiskFull(Unavailable):
    """Raised when a store has no room and refuses before anything is harmed."""

    code = "disk_full"


class TrainerUnavailable(Unavailable):
    """Raised when no trainer runs that could train a head."""

    code = "trainer_unavailable"


class DurabilityMissing(Unavailable):
    """Raised when a store is not set up to keep what it acknowledges."""

    code = "durability_missing"


class LedgerBehind(Unavailable):
    """Raised when the ledger is older than what it has acknowledged, and so takes no writes."""

    code = "ledger_behind"

    def __init__(
        self,
        detail: str = "the ledger is older than what it has acknowledged: nothing is written until "
        "its operator puts a newer one back or goes on with this one (`verso ledger`)",
    ) -> None:
        super().__init__(detail)


class CollectionBusy(Unavailable):
    """Raised when a backup or a migration needs a collection to stay as it is for a moment."""

    code = "collection_busy"


class ResultsUnavailable(Unavailable):
    """Raised when the folder of large results cannot be read or written."""

    code = "results_unavailable"


def _tree(cls: type[VersoError]) -> dict[str, type[VersoError]]:
    found = {cls.code: cls}
    for child in cls.__subclasses__():
        found.update(_tree(child))
    return found


CLASSES: dict[str, type[VersoError]] = _tree(VersoError)
"""Every class of the tree by its code."""


def error_body(error: BaseException) -> ErrorBody:
    """Return an error as JSON; a foreign exception shows its class name only, never its message.

    A foreign message may quote a text or a secret, and neither belongs in a result or a log.
    """
    if isinstance(error, VersoError):
        return {"code": error.code, "detail": error.detail, "retryable": error.retryable}
    return {"code": "internal", "detail": type(error).__name__, "retryable": False}


def from_body(body: ErrorBody) -> VersoError:
    """Rebuild the error that :func:`error_body` described; an unknown code gives VersoError."""
    return CLASSES.get(body["code"], VersoError)(body["detail"])
