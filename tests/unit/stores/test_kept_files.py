"""Files as 0.2.0 wrote them on a real broker: read by this version, or refused in one sentence.

The folder of a version is never changed. A format that changes gets a new version, and what it
reads of an older one is shown here.
"""

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from eoctl.cli.main import run
from eoctl.stores.history_cache import StateCache, state_cache
from recovery.errors import UsageError
from recovery.state import manifest
from tui.feed import recording

KEPT = Path(__file__).parents[2] / "kept"
VERSIONS = sorted(folder.name for folder in KEPT.glob("[0-9]*"))  # beside what others wrote
CLUSTER, TOPIC_ID = "O_tcK4Y9ThikMUKmEAWMZw", "RpUtC_0DT5yyatzY7DqczQ"
ENTRY = "j-20261122-215049-deef"


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what a version left, in the places where this one looks."""
    folder = shutil.copytree(KEPT / str(request.param), tmp_path / "kept")
    (tmp_path / "state" / "journal").mkdir(parents=True)
    shutil.copy(folder / "journal.jsonl", tmp_path / "state" / "journal")
    shutil.copytree(folder / "cache", tmp_path / "transaction-state" / f"{CLUSTER}_{TOPIC_ID}")
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path))
    return folder


def test_all_of_them_are_read(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert run([*words]) in (0, 1, 3), capsys.readouterr().err
        return capsys.readouterr().out

    assert ENTRY in said("journal", "list")
    assert "verified" in said("journal", "show", ENTRY)
    assert "payments:1" in said("why", "payments:1", "--from", str(kept / "incident.eoctl"))
    [row] = json.loads(said("txn", "hanging", "--from", str(kept / "incident.eoctl"),
                            "--verdict", "orphan", "-o", "json"))["rows"]  # fmt: skip
    assert (row["topic"], row["partition"], row["start_offset"]) == ("payments", 1, 3)
    assert run(["txn", "apply", str(kept / "plan.json"), "--execute", "--yes"]) != 0
    assert "plan file" not in capsys.readouterr().err, "it was read; then the cluster is not there"
    state = manifest.load((kept / "manifest.json").read_text(), "manifest.json")
    assert state.cluster_id == CLUSTER
    assert len(list(recording.read(kept / "recording.jsonl"))) >= 1
    with StateCache(CLUSTER, TOPIC_ID).reading(4).batches() as log:
        data = b"".join(bytes(extent.part().data) for extent in log.extents)
    assert b"payments.1" in data or b"orders.0" in data
    assert StateCache(CLUSTER, TOPIC_ID).sightings(["payments"])["payments"]


def newer_journal(kept: Path) -> None:
    path = kept.parent / "state" / "journal" / "journal.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    body = first[: first.rindex(b',"check"')].replace(b'"version":1', b'"version":2') + b"}"
    check = hashlib.sha256(body).hexdigest()[:16].encode()
    path.write_bytes(body[:-1] + b',"check":"' + check + b'"}\n' + b"".join(others))


def newer_schema(name: str) -> Callable[[Path], None]:
    def change(kept: Path) -> None:
        path = kept / name
        path.write_text(path.read_text().replace("/v1", "/v2", 1))

    return change


def newer_bundle(kept: Path) -> None:
    path = kept / "incident.eoctl"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"/v1", b"/v2", 1)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (newer_journal, ["journal", "list"]),
        (newer_bundle, ["status", "--from", "{}/incident.eoctl"]),
        (newer_schema("plan.json"), ["txn", "apply", "{}/plan.json"]),
        (newer_schema("manifest.json"), ["state", "show", "{}", "key"]),
    ],
)
def test_a_newer_version_is_refused_in_a_sentence(
    kept: Path,
    change: Callable[[Path], None],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(kept)
    assert run([word.replace("{}", str(kept)) for word in words]) == 2
    out, err = capsys.readouterr()
    [line] = err.splitlines()
    assert "version" in line
    assert not out


def test_a_newer_recording_is_refused_in_a_sentence(kept: Path) -> None:
    newer_schema("recording.jsonl")(kept)
    with pytest.raises(UsageError, match=r"a recording of another version: 'eoctl.recording/v2'"):
        list(recording.read(kept / "recording.jsonl"))


def test_a_newer_cache_is_refused_and_left_as_it_is(kept: Path) -> None:
    folder = kept.parent / "transaction-state" / f"{CLUSTER}_{TOPIC_ID}"
    path = folder / "4.batches"
    data = bytearray(path.read_bytes()[:-4])
    data[-8] = 2  # the version stands before the number of batches
    path.write_bytes(data + crc32c(bytes(data)).to_bytes(4, "big"))
    cache = state_cache(CLUSTER, TOPIC_ID)
    assert cache is not None
    with pytest.raises(UsageError, match=r"the cache is of version '2', and this eoctl reads .* 1"):
        cache.reading(4)
    seen = folder / "topics.json"
    seen.write_text(json.dumps(json.loads(seen.read_text()) | {"version": 1}))
    with pytest.raises(UsageError, match=r"the cache is of version '1', and this eoctl reads .* 0"):
        cache.sightings(["payments"])
    assert json.loads(seen.read_text())["version"] == 1
