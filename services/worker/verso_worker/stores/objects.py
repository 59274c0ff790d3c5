"""The object store of cold storage: a folder, S3, Google Cloud Storage or Azure, by obstore.

Credentials of a cloud are read from its usual environment variables (``AWS_ACCESS_KEY_ID`` and so
on). A folder is synced as the other stores are: a put is safe from a power cut when it returns.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from verso_core import files
from verso_core.errors import DiskFull, ObjectsUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_THREADS = 8
_LISTED_TOGETHER = 1000


OnCall = Callable[[str, str, int, float], None]
"""Receives an operation (put, get, delete), how it ended (ok, missing, error), the object's bytes
and the seconds that it took."""


def _not_counted(operation: str, status: str, size_bytes: int, seconds: float) -> None:
    """Count nothing."""


@dataclass(frozen=True)
class ObjectStorage:
    """Objects of one ledger, below its name.

    Attributes:
        url: ``file:///folder``, ``s3://bucket/prefix``, ``gs://…`` or ``az://…``; a part of it that
            is one platform's alone: objects that its ledgers do not know are removed.
        ledger: name of the ledger.
        floor_bytes: free space of a folder's disk that is not filled.
        on_call: told of every object that was asked for.
    """

    url: str
    ledger: str
    floor_bytes: int = 0
    on_call: OnCall = _not_counted

    def of(self, ledger: str) -> ObjectStorage:
        """Return the objects of another ledger."""
        return replace(self, ledger=ledger)

    def put(self, name: str, data: bytes) -> None:
        """Store an object, durably.

        Raises:
            DiskFull: the disk of the folder has no room.
            ObjectsUnavailable: the store did not answer, or refused.
        """
        with self._counted("put") as size, self._answering():
            size.append(len(data))
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                if shutil.disk_usage(self._folder).free - len(data) < self.floor_bytes:
                    raise DiskFull(f"no room for an object of {len(data)} bytes")
            self._obstore.put(self._store, self._key(name), data)
            if self._folder is not None:
                path = self._folder / self._key(name)
                files.sync(path)
                for folder in path.parents:
                    files.sync(folder)
                    if folder == self._folder.parent:
                        break

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Return objects; None for one that is not there.

        Raises:
            ObjectsUnavailable: the store did not answer, or refused.
        """
        if len(names) == 1:
            return [self._read(names[0])]
        with ThreadPoolExecutor(min(_THREADS, max(1, len(names)))) as pool:
            return list(pool.map(self._read, names))

    def parts(self, asked: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        """Return parts of objects by name, offset and size; None if the object is not there.

        Those of one object are read together. What it is too short for is missing.

        Raises:
            ObjectsUnavailable: the store did not answer, or refused.
        """
        by_name: dict[str, list[tuple[int, int]]] = {}
        for name, offset, size in asked:
            by_name.setdefault(name, []).append((offset, size))
        if len(by_name) == 1:
            [(name, spans)] = by_name.items()
            return list(self._spans(name, spans))
        with ThreadPoolExecutor(min(_THREADS, max(1, len(by_name)))) as pool:
            read = pool.map(self._spans, by_name.keys(), by_name.values())
            rest = dict(zip(by_name, map(iter, read), strict=True))
        return [next(rest[name]) for name, _, _ in asked]

    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Yield the names and sizes of the objects below a prefix.

        Raises:
            ObjectsUnavailable: the store did not answer, or refused.
        """
        below = len(self._key(""))
        with self._answering():
            if self._folder is not None and not (self._folder / self._key(prefix)).is_dir():
                return
            pages = self._obstore.list(
                self._store, self._key(prefix).rstrip("/"), chunk_size=_LISTED_TOGETHER
            )
            for page in pages:
                for one in page:
                    yield one["path"][below:], one["size"]

    def prefixes(self) -> Iterable[str]:
        """Yield the first parts of all names.

        Raises:
            ObjectsUnavailable: the store did not answer, or refused.
        """
        with self._answering():
            if self._folder is not None and not (self._folder / self.ledger).is_dir():
                return
            found = self._obstore.list_with_delimiter(self._store, self.ledger)
            below = len(self._key(""))
            for prefix in found["common_prefixes"]:
                yield prefix[below:] + "/"

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error.

        Raises:
            ObjectsUnavailable: the store did not answer, or refused.
        """
        for name in names:
            with self._counted("delete") as size, self._answering():
                size.append(0)
                try:
                    self._obstore.delete(self._store, self._key(name))
                except FileNotFoundError:
                    continue

    @cached_property
    def _obstore(self) -> Any:
        import obstore  # it takes its time to load, and most workers have no cold storage

        return obstore

    @cached_property
    def _folder(self) -> Path | None:
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @cached_property
    def _store(self) -> ObjectStore:
        options = {"mkdir": True} if self._folder is not None else {}
        store: ObjectStore = self._obstore.store.from_url(self.url, **options)
        return store

    def _key(self, name: str) -> str:
        return f"{self.ledger}/{name}"

    def _spans(self, name: str, spans: Sequence[tuple[int, int]]) -> Sequence[bytes | None]:
        """Return parts of one object by offset and size."""
        first = min(at for at, _ in spans)
        last = max(at + length for at, length in spans)
        data = self._read(name, first, last)
        if data is None:
            return [None] * len(spans)
        return [data[at - first : at - first + length] for at, length in spans]

    def _check_folder(self) -> None:
        if self._folder is not None and not self._folder.is_dir():
            raise ObjectsUnavailable("the folder of cold storage is not there")

    def _read(self, name: str, first: int = 0, last: int | None = None) -> bytes | None:
        """Return an object, or its bytes from ``first`` to ``last``: as many of them as it has."""
        options = None if last is None else {"range": (first, last)}
        with self._counted("get") as size, self._answering():
            self._check_folder()
            try:
                found = self._obstore.get(self._store, self._key(name), options=options)
                data = bytes(found.bytes())
            except FileNotFoundError:
                return None
            except self._obstore.exceptions.BaseError:
                if last is None or self._obstore.head(self._store, self._key(name))["size"] > first:
                    raise
                data = b""  # it ends before
            size.append(len(data))
            return data

    @contextmanager
    def _counted(self, operation: str) -> Iterator[MutableSequence[int]]:
        """Tell how a call ended; its body adds the size of an object that is there."""
        begun = time.perf_counter()
        size: MutableSequence[int] = []
        status = "error"
        try:
            yield size
            status = "ok" if size else "missing"
        finally:
            self.on_call(operation, status, sum(size), time.perf_counter() - begun)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Translate what obstore raises: its own errors, and those of Python that it uses."""
        try:
            yield
        except (OSError, ValueError, self._obstore.exceptions.BaseError) as exc:
            first = str(exc).partition("\n")[0]
            raise ObjectsUnavailable(f"the object store of cold storage: {first[:200]}") from exc


def local_objects(folder: Path, *, ledger: str) -> ObjectStorage:
    """Return the object store in a folder."""
    return ObjectStorage(folder.resolve().as_uri(), ledger=ledger)


def copy_objects(source: ObjectStorage, target: ObjectStorage) -> int:
    """Copy all objects of a ledger that the target does not have; return how many.

    Raises:
        DiskFull: the disk of the target has no room.
        ObjectsUnavailable: a store did not answer, or an object is gone.
    """
    there = {name for name, _ in target.list("")}
    copied = 0
    for name, _ in source.list(""):
        if name in there:
            continue
        [data] = source.get([name])
        if data is None:
            raise ObjectsUnavailable(f"the object {name} was removed while it was copied")
        target.put(name, data)
        copied += 1
    return copied
