"""What a running part has really imported: the second witness beside the import contracts.

import-linter reads source; these tests start a process and read ``sys.modules``, so a library that
drags in another is caught as well.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PARTS = {
    "verso_core",
    "verso_ledger",
    "verso_codecs",
    "verso_client",
    "verso_gateway",
    "verso_worker",
    "verso_keeper",
    "verso_standalone",
    "verso_training",
}
MODELS = {"torch", "transformers", "onnx", "onnxruntime", "tokenizers"}
STORES = {"qdrant_client", "qdrant_edge", "tantivy"}
ARRAYS = {"numpy", "numba"}
OPTIONAL = {"mcp", "mcp_types", "sse_starlette", "jwt", "multipart"}
"""What agents' tools need: imported when one is used."""
FILES = {
    "docx",
    "lxml",
    "odfdo",
    "pptx",
    "pypdfium2",
    "pypdfium2_raw",
    "python_calamine",
    "resiliparse",
}
"""What reads files: imported by a process of its own, started when a file comes."""
SDKS = {"cohere", "haystack", "huggingface_hub", "langchain_core", "llama_index", "mteb", "openai"}
"""What other people's code speaks to the platform with."""

CASES = {
    "verso_gateway.app": (
        {"verso_core", "verso_ledger", "verso_gateway"},
        MODELS | STORES | ARRAYS | OPTIONAL | FILES | SDKS,
    ),
    "verso_gateway.__main__": (
        {"verso_core", "verso_ledger", "verso_gateway"},
        MODELS | STORES | ARRAYS | OPTIONAL | FILES | SDKS,
    ),
    "verso_keeper.__main__": (
        {"verso_core", "verso_ledger", "verso_keeper"},
        MODELS | STORES | ARRAYS | {"fastapi"},
    ),
    "verso_client": (
        {"verso_core", "verso_client"},
        MODELS | STORES | ARRAYS | {"fastapi", "celery", "redis"},
    ),
    "verso_client.cli.app": (
        {"verso_core", "verso_client"},
        MODELS | STORES | ARRAYS | OPTIONAL | {"fastapi", "celery", "redis"},
    ),
    "verso_worker.__main__": (
        {"verso_core", "verso_ledger", "verso_codecs", "verso_worker"},
        {"torch", "transformers", "onnx", "fastapi", "qdrant_client"} | OPTIONAL | FILES | SDKS,
    ),
    "verso_worker.rules.pipeline": (
        {"verso_core", "verso_codecs", "verso_worker"},
        {"torch", "transformers", "onnxruntime", "celery", "redis", "fastapi", "prometheus_client"}
        | STORES,
    ),
    "verso_worker.engine.__main__": (
        {"verso_core", "verso_codecs", "verso_worker"},
        {"torch", "transformers", "celery", "redis", "fastapi", "prometheus_client"} | STORES,
    ),
    "verso_worker.stores.edge.process": (
        {"verso_core", "verso_codecs", "verso_worker"},
        MODELS | {"celery", "redis", "fastapi", "prometheus_client"},
    ),
    "verso_worker.records.recorder": (
        {"verso_core", "verso_codecs", "verso_worker"},
        MODELS | STORES | {"celery", "redis", "fastapi", "prometheus_client"},
    ),
    "verso_training.service.__main__": (
        {"verso_core", "verso_ledger", "verso_training"},
        MODELS | STORES | ARRAYS | {"celery", "fastapi"},
    ),
    "verso_training.service.job": (
        {"verso_core", "verso_ledger", "verso_training"},
        MODELS | STORES | {"numba", "celery", "fastapi"},
    ),
    "verso_training.heads.vector_classifier": (
        {"verso_core", "verso_codecs", "verso_training"},
        {"transformers", "celery", "redis", "fastapi"} | STORES,
    ),
    "verso_standalone.commands": (
        {"verso_core", "verso_client", "verso_gateway", "verso_standalone"},  # of it the settings
        MODELS | STORES | ARRAYS | {"onnx", "celery", "redis", "fastapi"},
    ),
    "verso_codecs.ngram": (
        {"verso_core", "verso_codecs"},
        MODELS | STORES | {"celery", "redis", "fastapi"},
    ),
    "verso_core.jobs.slices": (
        {"verso_core"},
        MODELS | STORES | ARRAYS | {"celery", "redis", "fastapi", "zstandard"},
    ),
    "verso_ledger": (
        {"verso_core", "verso_ledger"},
        MODELS | STORES | ARRAYS | {"celery", "fastapi", "zstandard"},
    ),
}


def roots_after_importing(module: str) -> set[str]:
    """Return the top-level names that a fresh interpreter has loaded after an import."""
    code = (
        f"import gc, json, os, sys; gc.disable(); import {module}; "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), flush=True); "
        "os._exit(0)"  # without the search for garbage, which takes half as long as the imports
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    roots: list[str] = json.loads(done.stdout)
    return set(roots)


@pytest.mark.parametrize("module", CASES)
def test_a_part_loads_its_own_layers_and_nothing_it_must_not(module: str) -> None:
    own, forbidden = CASES[module]
    roots = roots_after_importing(module)
    assert roots & PARTS <= own
    assert not roots & forbidden


def test_the_gateway_loads_no_reader_of_files_and_no_server_of_tools_at_its_start() -> None:
    """Its protocols are its own modules; what they would need beyond that is loaded when used."""
    loaded = (
        "import json, sys; import verso_gateway.__main__; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True)
    names: list[str] = json.loads(done.stdout)
    late = ("verso_gateway.extract.readers.", "verso_client", "verso_worker", "verso_codecs")
    assert not [name for name in names if name.startswith(late)]
    assert {"verso_gateway.protocols.tei", "verso_gateway.protocols.mcp"} <= set(names)
