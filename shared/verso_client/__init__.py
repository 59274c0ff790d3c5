"""Python client of Verso: :class:`Client`, :class:`AsyncClient`, and the `verso` command line."""

from verso_client.async_client import AsyncClient
from verso_client.client import Client
from verso_client.exchange import Retries
from verso_client.operations.documents import Document, File, IngestReport, Progress
from verso_client.operations.heads import Training
from verso_client.operations.lines import SourceLines
from verso_core.jobs.cluster import ClusterRequest, ProjectRequest
from verso_core.jobs.collections import CollectionInfo
from verso_core.jobs.documents import Counted, DocumentInfo, DocumentPage, Facets
from verso_core.jobs.filters.filter import Filter
from verso_core.jobs.ingest import Embedded, Ingested
from verso_core.jobs.job import Job, JobEvent
from verso_core.jobs.logs.lines import LinesRequest
from verso_core.jobs.logs.tail import TailEvent, TailRequest
from verso_core.jobs.logs.views import LabelsRequest, StatementsRequest, VolumeRequest
from verso_core.jobs.migrate import MigrationState
from verso_core.jobs.models import ItemError
from verso_core.jobs.reconstruct import Guess, StoredText
from verso_core.jobs.registry import RegistryState
from verso_core.jobs.scrub import Damaged, RecentWalk, ScrubState
from verso_core.jobs.search import Found, Hit
from verso_core.jobs.statistics import CodecShare, Statistics

__all__ = [
    "AsyncClient",
    "Client",
    "ClusterRequest",
    "CodecShare",
    "CollectionInfo",
    "Counted",
    "Damaged",
    "Document",
    "DocumentInfo",
    "DocumentPage",
    "Embedded",
    "Facets",
    "File",
    "Filter",
    "Found",
    "Guess",
    "Hit",
    "IngestReport",
    "Ingested",
    "ItemError",
    "Job",
    "JobEvent",
    "LabelsRequest",
    "LinesRequest",
    "MigrationState",
    "Progress",
    "ProjectRequest",
    "RecentWalk",
    "RegistryState",
    "Retries",
    "ScrubState",
    "SourceLines",
    "StatementsRequest",
    "Statistics",
    "StoredText",
    "TailEvent",
    "TailRequest",
    "Training",
    "VolumeRequest",
]
