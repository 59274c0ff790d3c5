"""Python client of Verso: :class:`Client`, :class:`AsyncClient`, and the `verso` command line."""

from verso_client.answers import (
    CodecShare,
    CollectionInfo,
    Damaged,
    DocumentInfo,
    DocumentPage,
    Embedded,
    Found,
    Guess,
    Hit,
    Ingested,
    IngestReport,
    ItemError,
    Job,
    JobEvent,
    MigrationState,
    RecentWalk,
    RegistryState,
    ScrubState,
    Statistics,
    StoredText,
)
from verso_client.async_client import AsyncClient
from verso_client.client import Client
from verso_client.operations.documents import Document, Progress
from verso_client.operations.training import Training
from verso_client.retries import Retries

__all__ = [
    "AsyncClient",
    "Client",
    "CodecShare",
    "CollectionInfo",
    "Damaged",
    "Document",
    "DocumentInfo",
    "DocumentPage",
    "Embedded",
    "Found",
    "Guess",
    "Hit",
    "IngestReport",
    "Ingested",
    "ItemError",
    "Job",
    "JobEvent",
    "MigrationState",
    "Progress",
    "RecentWalk",
    "RegistryState",
    "Retries",
    "ScrubState",
    "Statistics",
    "StoredText",
    "Training",
]
