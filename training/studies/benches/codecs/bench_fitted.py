"""What does a platform hold of later texts after its codec was fitted to earlier ones?

A platform is started and a set's first part (`record_sets`) taken in, as `bench_storage.py` cuts
it. Then what a user does (docs/how-to/fit-to-a-collection.md): `verso train decoder --on`, `models
add`, `models promote`, and the last part is taken in, by the artifact that now serves. Bytes a
record are the platform's own count of the patches (`GET /v1/collections/NAME/stats`): payloads, and
as in that bench the byte that names the codec. The same texts go in before the promotion too, by
the artifact as it was. All are verified from the stores; then they are read back and compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import record_sets
import sheet

from verso_client import Client, Document, Retries
from verso_core import manifest
from verso_core.jobs import Precision
from verso_standalone import models
from verso_standalone.fitting import texts_of
from verso_standalone.folder import DataFolder
from verso_standalone.stack import Stack, StackConfig, find_artifact
from verso_training.artifact import collection

_SETTINGS = {
    "VERSO_VERIFY_DELAY_S": "0.5",
    "VERSO_RAW_TEXT_RETENTION_S": "0",
    "VERSO_SCRUB_SHARE": "0",
}
_WAIT_S = 1800.0
_BATCH = 256


def measure(
    found: record_sets.RecordSet, artifact: Path, *, records: int, data: Path
) -> dict[str, Any]:
    """Take a set in, fit, publish, ingest its last part; return bytes a record."""
    test = list(record_sets.spread(found.test, records))[:records]
    stack = Stack(StackConfig(data, artifact, port=0, settings=_SETTINGS))
    stack.start()
    try:
        with Client(stack.url, retries=Retries(patience_s=_WAIT_S)) as client:
            _taken_in(client, "first", found.fit)
            before = _taken_in(client, "as it was", test)
            space = manifest.load(artifact).manifest.space.id
            fitted = data.parent / "fitted"
            known = texts_of(client, "first", space=space)
            collection.fit(artifact, known, folder=fitted, name=fitted.name)
            codec = models.add(fitted, DataFolder(data.resolve()).models, share=0.1)
            _promoted(client, fitted.name)
            after = _taken_in(client, "fitted", test)
    finally:
        stack.stop()
    return {"set": found.name, "fitted_to": len(known), "codec": codec} | {
        "records": after["records"],
        "raw": after["raw"],
        "stored": before["stored"],
        "fitted": after["stored"],
        "codecs": after["codecs"],
    }


def _taken_in(client: Client, what: str, texts: Sequence[bytes]) -> dict[str, Any]:
    """Ingest texts, wait until all are verified, read them back; return their patches' bytes."""
    name = what.replace(" ", "-")
    client.create_collection(name, precision=Precision.INT8)
    documents = (Document(text, id=str(number)) for number, text in enumerate(texts))
    report = client.ingest(documents, collection=name)
    if report.failed:
        raise AssertionError(f"{what}: {len(report.failed)} texts were refused")
    until = time.monotonic() + _WAIT_S
    while (stats := client.stats(name)).verified < len(texts):
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: {stats.verified} of {len(texts)} texts verified")
        time.sleep(1.0)
    for start in range(0, len(texts), _BATCH):
        ids = [str(number) for number in range(start, min(start + _BATCH, len(texts)))]
        read = client.reconstruct(ids, collection=name)
        if [text.data for text in read] != list(texts[start : start + _BATCH]):
            raise AssertionError(f"{what}: a text did not come back")
    return {
        "records": stats.chunks,
        "raw": stats.bytes_text / stats.chunks,
        "stored": stats.bytes_patches / stats.chunks,
        "codecs": {codec: share.records for codec, share in stats.codecs.items()},
    }


def _promoted(client: Client, name: str) -> None:
    """Promote the canary, and wait until every worker serves it."""
    client.promote()
    until = time.monotonic() + _WAIT_S
    while not (workers := client.registry().workers) or any(
        worker["artifact"]["stable"]["name"] != name for worker in workers
    ):
        if time.monotonic() > until:
            raise TimeoutError(f"{name} is not served: {workers}")
        time.sleep(0.5)


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--sets", nargs="+", default=["loghub: Spark"])
    parser.add_argument("--records", type=int, default=1000, help="texts of each last part")
    arguments = parser.parse_args()
    paper = sheet.Sheet("fitted")
    artifact = (arguments.artifact or find_artifact()).resolve()
    rows = []
    for found in record_sets.record_sets(arguments.data, arguments.sets):
        with tempfile.TemporaryDirectory(prefix="verso-", ignore_cleanup_errors=True) as folder:
            data = Path(folder) / "data"
            rows.append(measure(found, artifact, records=arguments.records, data=data))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    columns = ["set", "fitted_to", "records", "raw", "stored", "fitted"]
    sheet.table(
        "bytes a record, by artifacts that are served",
        columns,
        [[row[c] for c in columns] for row in rows],
    )
    paper.finish({"artifact": manifest.load(artifact).id, "sets": rows})


if __name__ == "__main__":
    main()
