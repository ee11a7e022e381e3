"""The blob store: snapshots in, outputs out. Blocking calls, for worker threads."""

import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from services.stager import workdir
from shared.runtime.errors import SettingsError

_CHUNK: Final = 4 << 20
GoOn = Callable[[], None]
"""Called often during long work; raises to end it."""


class StoreError(Exception):
    """The store did not do what was asked; it may do it later."""


class SnapshotGone(Exception):
    """There is no snapshot of that digest for that tenant."""


class NotStored(StoreError):
    """There is no object of that name."""


class Corrupt(StoreError):
    """What came out of the store is not what went in."""


class Blobs:
    """One store by its URL (`file:///…`, `s3://…`)."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError where the URL names no store that could be used."""
        try:
            self._store: ObjectStore = from_url(url)
        except (BaseError, ValueError, OSError) as error:
            why = str(error).splitlines()[0]
            raise SettingsError(
                f"TIDEGATE_BLOB_URL: {url!r} cannot be used ({why}); give file:///an/existing/folder, s3://bucket, "
                f"gs://bucket or az://container"
            ) from error

    @contextmanager
    def snapshot(self, tenant: str, digest: str, spool_in: str, go_on: GoOn) -> Iterator[tuple[BinaryIO, int]]:
        """The snapshot's bytes, checked against its digest, in a nameless file of `spool_in`'s file system."""
        with tempfile.TemporaryFile(dir=spool_in) as spool, _store_errors(f"snapshot {digest}"):
            found = hashlib.sha256()
            size = 0
            for chunk in self._find(tenant, digest).stream(_CHUNK):
                go_on()
                found.update(chunk)
                size += spool.write(chunk)
            if f"sha256:{found.hexdigest()}" != digest:
                raise Corrupt(f"snapshot {digest} has other content in the store: sha256:{found.hexdigest()}")
            spool.seek(0)
            yield spool, size

    def _find(self, tenant: str, digest: str) -> "obstore.GetResult":
        """The first upload of it that is there: each has a name of its own, and the content is the same. Before that
        they had the digest's."""
        named = f"{tenant}/snapshots/{digest.removeprefix('sha256:')}"
        uploads = [found["path"] for page in obstore.list(self._store, f"{named}/") for found in page]
        for key in (*uploads, f"{named}.tar.gz"):
            with suppress(FileNotFoundError):
                return obstore.get(self._store, key)
        raise SnapshotGone(digest)

    def put(self, key: str, file: IO[bytes], size: int, go_on: GoOn) -> tuple[int, str]:
        """Store the next `size` bytes of `file` (fewer where it is shorter), whole or not at all; size and sha256.

        What lies in the store afterwards has been read back and compared; raises Corrupt where it differs.
        """
        digest = hashlib.sha256()
        read = 0

        def chunks() -> Iterator[bytes]:
            nonlocal read
            # Not past the size it had: a file that grows for ever ends here too.
            while read < size and (chunk := file.read(min(_CHUNK, size - read))):
                go_on()
                digest.update(chunk)
                read += len(chunk)
                yield chunk

        with _store_errors(key):
            if size <= _CHUNK:
                obstore.put(self._store, key, b"".join(chunks()))
            else:
                obstore.put(self._store, key, chunks())
            self._verify(key, read, digest.hexdigest(), go_on)
        return read, digest.hexdigest()

    def fetch(self, key: str, file: IO[bytes], size: int, digest: str, go_on: GoOn) -> None:
        """Write an object to `file`; raises Corrupt where it has another size or sha256."""
        found = hashlib.sha256()
        fetched = 0
        with _store_errors(key):
            for chunk in obstore.get(self._store, key).stream(_CHUNK):
                go_on()
                found.update(chunk)
                fetched += len(chunk)
                file.write(chunk)
        if (fetched, found.hexdigest()) != (size, digest):
            raise Corrupt(f"{key} has other content in the store than was verified when it came")

    def get(self, key: str) -> bytes:
        """A whole object of modest size."""
        with _store_errors(key):
            return bytes(obstore.get(self._store, key).bytes())

    def first(self, key: str, size: int) -> bytes:
        """The first `size` bytes of an object that has as many."""
        with _store_errors(key):
            return bytes(obstore.get_range(self._store, key, start=0, length=size)) if size > 0 else b""

    def size(self, key: str) -> int:
        """An object's size."""
        with _store_errors(key):
            return obstore.head(self._store, key)["size"]

    def remove(self, name: str) -> None:
        """Remove everything in the folder of that name, or where there is none the object; gone already is no error."""
        if isinstance(self._store, LocalStore) and self._store.prefix is not None:
            # First: an empty folder, as a killed removal may leave one, is none to `list` and no object to `delete`.
            # What a killed writer left (`name#1`) is not listed.
            path = f"{self._store.prefix}/{name}"
            shutil.rmtree(path, ignore_errors=True)
            for left in glob.iglob(f"{glob.escape(path)}#*"):
                os.unlink(left)
        with _store_errors(name):
            below = [found["path"] for batch in obstore.list(self._store, name) for found in batch]
            with suppress(FileNotFoundError):
                obstore.delete(self._store, below or name)

    def remove_some(self, folder: str, limit: int) -> bool:
        """Remove what is in a folder, and it; no more pages than hold `limit` objects. Whether nothing is left."""
        removed = 0
        with _store_errors(folder):
            for page in obstore.list(self._store, folder):
                if removed >= limit:
                    return False
                obstore.delete(self._store, [found["path"] for found in page])
                removed += len(page)
        if isinstance(self._store, LocalStore) and self._store.prefix is not None:
            with suppress(FileNotFoundError):  # empty folders stay, and what a killed writer left (`name#1`)
                shutil.rmtree(f"{self._store.prefix}/{folder}")
        return True

    def folders(self, prefix: str) -> list[str]:
        """The folders and objects directly below the folder `prefix`, by their full names."""
        with _store_errors(prefix):
            found = obstore.list_with_delimiter(self._store, prefix)
            return [*found["common_prefixes"], *(each["path"] for each in found["objects"])]

    def settle(self) -> None:
        """Have what was stored survive a power cut, where the store leaves that to its user."""
        if isinstance(self._store, LocalStore) and self._store.prefix is not None:
            fd = os.open(self._store.prefix, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                workdir.sync(fd)
            finally:
                os.close(fd)

    def _verify(self, key: str, size: int, digest: str, go_on: GoOn) -> None:
        stored = hashlib.sha256()
        stored_size = 0
        for chunk in obstore.get(self._store, key).stream(_CHUNK):
            go_on()
            stored.update(chunk)
            stored_size += len(chunk)
        if (stored_size, stored.hexdigest()) != (size, digest):
            raise Corrupt(f"{key} was stored with {stored_size} of {size} bytes, or other ones")


@contextmanager
def _store_errors(what: str) -> Iterator[None]:
    """obstore's errors become one that names the object, in one line (it adds its own debug dump below)."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotStored(f"{what} is not in the store") from error
    except BaseError as error:
        raise StoreError(f"{what}: {str(error).splitlines()[0]}") from error
