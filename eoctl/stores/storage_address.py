"""Find the storage that a path or an address means, and the file in it."""

import re
from pathlib import Path

from eoctl.host.extras import installed, missing
from eoctl.stores.storage import LocalFolder, Storage
from recovery.errors import UsageError

OBJECTS = ("s3", "s3a", "gs")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+(.*)", re.S)


def is_address(given: str | Path) -> bool:
    """Return True for `SCHEME://...`, even if Path has removed one of its slashes."""
    return _ADDRESS.match(str(given)) is not None


def storage_at(given: str | Path) -> Storage:
    """Return the storage at a path or an address, without reading or writing anything.

    Raises UsageError for an address that is not object storage, or without its package.
    """
    if not (match := _ADDRESS.match(str(given))):
        return LocalFolder(Path(given).absolute())
    scheme, rest = match[1].lower(), match[2]
    where = f"{scheme}://{rest}"
    if scheme not in OBJECTS:
        raise UsageError(
            f"{scheme}:// is not read or written here",
            where=where,
            remedy=f"give a folder of this machine, or {', '.join(f'{s}://' for s in OBJECTS)}",
        )
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not bucket or any(sign in rest for sign in "@?#") or ":" in bucket:
        raise UsageError(
            "names no bucket and no more than a bucket and a path",
            where=where.partition("?")[0] if "@" not in where else f"{scheme}://...",
            remedy=f"write {scheme}://BUCKET/PATH; credentials are taken from the environment",
        )
    if any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise UsageError("a part of the path is empty, . or ..", where=where)
    if not installed("obstore"):
        raise missing("data", "object storage")
    from eoctl.stores.object_storage import ObjectStorage

    return ObjectStorage(scheme, bucket, prefix)


def storage_and_name(given: str | Path, name: str) -> tuple[Storage, str]:
    """Return the storage of a file and its name there. Raises UsageError.

    given: the file's path, or the folder in which it is called `name`.
    """
    if match := _ADDRESS.match(str(given)):
        folder, _, last = match[2].rstrip("/").rpartition("/")
        if folder and last.endswith(Path(name).suffix):
            return storage_at(f"{match[1]}://{folder}"), last
        return storage_at(given), name
    path = Path(given)
    if path.is_dir():
        return storage_at(path), name
    return storage_at(path.parent), path.name


def read_text(given: str | Path) -> str:
    """Return the text of a file, or of an object, given its address.

    Raises UsageError, UnreachableError.
    """
    folder, name = Path(given).parent, Path(given).name
    storage = storage_at(folder)
    try:
        return storage.get(name).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot be read: {reason}", where=str(given)) from None
