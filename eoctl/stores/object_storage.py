"""Files in object storage, through obstore: S3, services with its protocol, and Google's.

There are no locks and no links here. A file that must be new is put with that condition, and
reading replaces a lost answer: the content shows who wrote it. obstore takes credentials from the
environment; its messages are never shown, only the status and code in them.
"""

import errno
import hashlib
import io
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, ClassVar

from eoctl.stores.storage import PROBE, NewFile
from recovery.errors import EoctlError, RefusedError, UnreachableError, UsageError
from recovery.state import task_sizes

PART_BYTES = task_sizes.PART_BYTES
READ_BYTES = 1 << 20  # of a file that is read at any position: footers are read on from there
MOST_AT_ONCE = 1000  # names of one answer or, in S3, of one request
RETRIES = 8
RETRY_SECONDS = 60.0
UNKNOWN_WAITS = (0.2, 1.0, 3.0)  # seconds, before a create without an answer is tried again
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_CREDENTIALS = re.compile(
    r"Missing(?:SecretAccessKey|AccessKeyId)|Missing (?:SecretAccessKey|AccessKeyId)"
    r"|/latest/api/token|/latest/meta-data|/computeMetadata/|metadata\.google\.internal"
)


class ObjectStorage:
    """Objects below a prefix of a bucket."""

    exclusive = False
    read_bytes = task_sizes.READ_BYTES
    _made: ClassVar[int] = 0

    def __init__(self, scheme: str, bucket: str, prefix: str) -> None:
        from obstore.exceptions import BaseError
        from obstore.store import GCSStore, S3Store

        self.address = f"{scheme}://{bucket}" + (f"/{prefix}" if prefix else "")
        kind: Any = GCSStore if scheme == "gs" else S3Store
        backoff = {
            "init_backoff": timedelta(seconds=0.1),
            "max_backoff": timedelta(seconds=10),
            "base": 2,
        }
        try:
            self._store = kind(
                bucket,
                prefix=prefix or None,
                retry_config={
                    "max_retries": RETRIES,
                    "backoff": backoff,
                    "retry_timeout": timedelta(seconds=RETRY_SECONDS),
                },
            )
        except (BaseError, ValueError) as error:
            raise _told(error, self.address) from None

    @property
    def requests(self) -> int:
        return ObjectStorage._made

    def shown(self, name: str) -> str:
        return f"{self.address}/{name}"

    def held(self) -> nullcontext[None]:
        """See Storage: others cannot be kept out; the first manifest counts."""
        return nullcontext()

    def prove(self) -> None:
        """See Storage: not every service with S3's protocol obeys the condition."""
        name = f"{PROBE}{uuid.uuid4().hex}"
        made = self.put_new(name, b"1")
        refused = made and not self.put_new(name, b"2")
        self.delete([name])
        if not refused:
            raise RefusedError(
                "this object storage writes over an object that may only be created "
                "(If-None-Match), so that a state could be lost",
                where=self.address,
                remedy="use one that has conditional writes, or a folder",
            )

    def top(self) -> list[str]:
        import obstore

        with _asking(self.address):
            found = obstore.list_with_delimiter(self._store)
        names = [entry["path"] for entry in found["objects"]]
        folders = [path.rstrip("/") for path in found["common_prefixes"]]
        _count(_listings(len(names) + len(folders)))
        return sorted(path.rpartition("/")[2] for path in (*names, *folders))

    def names(self, folder: str) -> list[str]:
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        import obstore

        with _asking(self.shown(folder)):
            batches = obstore.list(self._store, prefix=folder)
            found = {entry["path"]: int(entry["size"]) for batch in batches for entry in batch}
        _count(_listings(len(found)))
        return found

    def size(self, name: str) -> int:
        import obstore

        _count()
        with _asking(self.shown(name)):
            return int(obstore.head(self._store, name)["size"])

    def sha256(self, name: str, size: int) -> str:
        """See Storage: each answer says how large the object is; of an empty one none has bytes."""
        digest = hashlib.sha256()
        if not size and self.size(name):
            return ""
        for start in range(0, size, PART_BYTES):
            data, there = self._range(name, start, min(PART_BYTES, size - start))
            if there != size:
                return ""
            digest.update(data)
        return digest.hexdigest()

    def get(self, name: str) -> bytes:
        import obstore

        _count()
        with _asking(self.shown(name)):
            return bytes(obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, size: int) -> bytes:
        return self._range(name, start, size)[0]

    def _range(self, name: str, start: int, size: int) -> tuple[bytes, int]:
        """Return some bytes of an object, and how many it has: none and -1 if it is shorter."""
        import obstore
        from obstore.exceptions import BaseError

        _count()
        with _asking(self.shown(name)):
            try:
                found = obstore.get(self._store, name, options={"range": (start, start + size)})
            except BaseError as error:
                if (status := _STATUS.search(str(error))) and status[1] == "416":
                    return b"", -1
                raise
            return bytes(found.bytes()), int(found.meta["size"])

    def opened(self, name: str, size: int | None = None) -> Any:
        import pyarrow as pa

        return pa.PythonFile(io.BufferedReader(_Object(self, name, size), READ_BYTES), mode="r")

    def put(self, name: str, data: bytes) -> None:
        import obstore

        _count()
        with self.writing(name):
            obstore.put(self._store, name, data, use_multipart=False)

    def put_new(self, name: str, data: bytes) -> bool:
        """See Storage: the first of several concurrent creators wins, and all of them notice."""
        for seconds in (*UNKNOWN_WAITS, None):
            try:
                if (ours := self._create(name, data)) is not None:
                    return ours
            except UnreachableError:
                # the object may have arrived, or may still: the next try meets it
                if seconds is None:
                    raise
            if seconds is not None:
                time.sleep(seconds)
        raise UnreachableError(
            "the object storage refuses to create an object, and shows none of that name",
            where=self.shown(name),
            remedy="run the same command again",
        )

    def _create(self, name: str, data: bytes) -> bool | None:
        """Create an object once: True if it is ours, False another's, None if none is visible. S3
        also refuses while another such request is under way (409)."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        _count()
        with self.writing(name):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                with suppress(FileNotFoundError):
                    return self.get(name) == data
                return None
        return True

    def new_file(self, name: str) -> NewFile:
        return _NewObject(self, self._store, name)

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """See Storage: an object exists completely or not at all, so nothing needs removing."""
        with _asking(self.shown(name)):
            try:
                yield
            except FileNotFoundError as error:  # of a bucket, or of an upload that was ended there
                raise _told(error, self.shown(name)) from None

    def settle(self, folder: str) -> None:
        """See Storage: object storage keeps what it has confirmed."""

    def delete(self, names: Iterable[str]) -> None:
        """See Storage: many in one request, where the service knows such a request."""
        left = list(names)
        while left:
            some, left = left[:MOST_AT_ONCE], left[MOST_AT_ONCE:]
            if not self._delete_at_once(some):
                for name in some:
                    self._delete_one(name)

    def _delete_at_once(self, names: list[str]) -> bool:
        import obstore
        from obstore.exceptions import BaseError

        if len(names) == 1 or self.address.startswith("gs://"):
            return False
        _count()
        try:
            obstore.delete(self._store, names)
        except (BaseError, OSError):  # obstore does not try it again
            return False
        return True

    def _delete_one(self, name: str) -> None:
        import obstore

        _count()
        with _asking(self.shown(name)), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def delete_folder(self, folder: str) -> None:
        self.delete(self.sizes(folder))


def _count(requests: int = 1) -> None:
    ObjectStorage._made += requests


def _listings(names: int) -> int:
    """Return the requests that list so many names."""
    return max(1, -(-names // MOST_AT_ONCE))


class _Object(io.RawIOBase):
    """An object that pyarrow can read at any position."""

    def __init__(self, storage: ObjectStorage, name: str, size: int | None) -> None:
        super().__init__()
        self._storage, self._name = storage, name
        self._size = storage.size(name) if size is None else size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        data = self._storage.get_range(self._name, self._at, wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _NewObject(io.RawIOBase):
    """An object that is being written in parts; it does not exist before `finish`."""

    def __init__(self, storage: ObjectStorage, store: Any, name: str) -> None:
        import obstore

        super().__init__()
        self._storage, self._name = storage, name
        self._writer: Any = obstore.open_writer(
            store, name, buffer_size=PART_BYTES, max_concurrency=2
        )
        self._digest = hashlib.sha256()
        self._written = 0

    @property
    def sink(self) -> Any:
        return self

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._digest.update(content)
        self._writer.write(content)
        self._written += len(content)
        return len(content)

    def finish(self, *, hashed: bool = True) -> tuple[int, str]:
        _count(task_sizes.writes(self._written, PART_BYTES))
        try:
            self._writer.close()
        except Exception:
            if not self._arrived():
                raise
        return self._written, self._digest.hexdigest() if hashed else ""

    def _arrived(self) -> bool:
        """Return True if the object exists although no answer said so: only we use the name."""
        with suppress(OSError, EoctlError):
            return self._storage.size(self._name) == self._written
        return False


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """Translate obstore's errors into an error of ours; FileNotFoundError for a missing object."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise _no_bucket(where) from None
        raise FileNotFoundError(errno.ENOENT, "there is no such object", where) from None
    except (BaseError, OSError) as error:
        raise _told(error, where) from None


def _no_bucket(where: str) -> UsageError:
    bucket = "/".join(where.split("/", 3)[:3])
    return UsageError("there is no such bucket", where=bucket, remedy="create it, or name another")


def _told(error: Exception, where: str) -> EoctlError:
    """Return what an obstore error means; from its text only the status and the code."""
    text = str(error)
    status = found[1] if (found := _STATUS.search(text)) else None
    code = found[1] if (found := _CODE.search(text)) else None
    if _NO_CREDENTIALS.search(text):
        return UnreachableError(
            "no credentials for this object storage were found",
            where=where,
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for gs:// "
            "GOOGLE_APPLICATION_CREDENTIALS",
        )
    if code == "NoSuchBucket":
        return _no_bucket(where)
    if status in ("401", "403"):
        said = f"{status} {code}" if code else status
        return UnreachableError(
            f"the object storage refuses these credentials, or they may not do this ({said})",
            where=where,
            remedy="check the credentials, their rights to the bucket, and the region",
        )
    if status in ("301", "302", "307") or "redirect" in text:
        return UsageError(
            "the bucket is in another region",
            where=where,
            remedy="set AWS_REGION",
        )
    if "builder error" in text:
        return UsageError(
            "its endpoint is not an https address",
            where=where,
            remedy="set AWS_ALLOW_HTTP=true for one that is http, such as a lab's",
        )
    if "Config error" in text or isinstance(error, ValueError):
        return UsageError("a setting of it in the environment is wrong", where=where)
    said = f"status {status}" + (f" {code}" if code else "") if status else "no answer"
    return UnreachableError(
        f"the object storage did not do what was asked ({said})",
        where=where,
        remedy="run the same command again",
    )
