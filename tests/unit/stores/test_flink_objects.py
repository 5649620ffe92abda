"""Checkpoints that real Flink jobs wrote, put into object storage: read as Flink reads them."""

import json
from collections.abc import Iterator

import pytest

from eoctl.stores import flink_checkpoint
from recovery.errors import IncompleteError, UsageError
from tests.object_store import environment, make_bucket, put_object, s3_server
from tests.unit.formats.test_formats_flink_checkpoint import KEPT, as_loaded

FOLDER = b"file:/tmp/flink-kept/merged-files"  # of the job that wrote it, in its own metadata
ELSEWHERE = b"s3p://flink/" + b"f" * (len(FOLDER) - 12)  # as long: strings have their length
JOB = "4195056c0f23e297f46fe077769107c4"


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with s3_server() as port:
        make_bucket(port, "flink")
        yield port


@pytest.fixture(autouse=True)
def _environment(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("case", ["files", "incrementing-2.2", "merged-files"])
def test_a_checkpoint_is_read_as_flink_reads_it(server: int, case: str) -> None:
    """With states in `_metadata`, in files beside it, and in files that it names absolutely."""
    folder = "flink/" + case
    if case == "merged-files":
        folder = f"{ELSEWHERE[6:].decode()}/checkpoints/{JOB}"
    for path in (KEPT / case).rglob("*"):
        if path.is_file():
            content = path.read_bytes().replace(FOLDER, ELSEWHERE)
            put_object(server, f"{folder}/{path.relative_to(KEPT / case)}", content)
    put_object(server, f"{folder}/chk-3/_metadata", b"")
    put_object(server, f"{folder}/chk-4/unfinished", b"")
    loaded = json.loads((KEPT / case / "loaded.json").read_text())
    for scheme in ("s3", "s3a", "s3p"):
        for end in ("", "/", "/_metadata"):
            found = flink_checkpoint.read(f"{scheme}://{folder}/chk-2{end}")
            assert as_loaded(found.content) == loaded
            assert (found.is_savepoint, found.newer) == (False, (3,))


def test_what_cannot_be_read_is_one_sentence() -> None:
    for bucket in ("flink", "nobody"):  # a question for an object does not tell them apart
        with pytest.raises(IncompleteError, match="no/_metadata: cannot be read: there is no such"):
            flink_checkpoint.read(f"s3://{bucket}/no")
    for scheme in ("hdfs", "abfss"):
        with pytest.raises(UsageError, match=f"not on this host, and {scheme} is not read here"):
            flink_checkpoint.read(f"{scheme}://name/chk-1")
