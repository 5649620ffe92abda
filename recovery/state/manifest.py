"""The manifest of a state: what it was made from, up to where, and what is proven about it.

A state is exactly what its manifest lists, with hashes; the manifest is written last.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from recovery.documents import Document
from recovery.errors import UsageError
from recovery.facts import HasPartition, TopicPartition
from recovery.plurals import counted
from recovery.shared.cut import Cut
from recovery.shared.digest import Digest
from recovery.state.changelogs.changelog import ChangelogFormat, LogFacts
from recovery.times import span

SCHEMA = "eoctl.manifest/v1"


class ManifestFile(Document):
    """path: relative to the manifest. size: bytes."""

    path: str
    rows: int
    size: int
    sha256: str


class ManifestDigest(Document):
    """The number of rows, and the sum of their SHA-256 modulo 2^256 (see docs/state.md)."""

    rows: int
    sha256_sum: str

    @classmethod
    def of(cls, digest: Digest) -> "ManifestDigest":
        return cls(rows=digest.rows, sha256_sum=digest.hex)

    def digest(self) -> Digest:
        return Digest.of(self.rows, self.sha256_sum)


class ManifestPartition(HasPartition, Document):
    """One partition's state. counts: see `recovery.audit.range_counts`. expired: last records that
    retention hides. incomplete: why it is not provably complete."""

    topic: str
    partition: int
    start: int
    end: int
    counts: dict[str, int | None]
    expired: int
    digest: ManifestDigest
    files: tuple[ManifestFile, ...]
    seen: dict[str, Any] = {}
    producers: dict[str, dict[str, Any]] = {}
    bytes_read: int
    seconds: float
    incomplete: tuple[str, ...] = ()
    proof: str | None = None


class Manifest(Document):
    """One state. Times are RFC 3339. peak_bytes: the most resident memory of one process. run: in
    object storage, the identity of the process that published the state; otherwise empty."""

    schema_: Literal["eoctl.manifest/v1"] = Field(default="eoctl.manifest/v1", alias="schema")
    cluster_id: str | None
    format: str
    options: dict[str, Any]
    retention_ms: dict[str, int] = {}
    retention_from: str | None = None
    engine: str
    reader: str = "own"
    started_at: str
    finished_at: str
    seconds: float
    cut: Cut
    complete: bool
    incomplete: tuple[str, ...]
    consistent: bool | None
    notes: tuple[str, ...] = ()
    digest: ManifestDigest
    digest_covers: tuple[str, ...] = ("partition", "key", "timestamp", "value")  # no headers
    changelogs: dict[str, ManifestDigest]
    partitions: tuple[ManifestPartition, ...]
    incremental_from: str | None = None
    run: str = ""
    topic_configs: dict[str, dict[str, str | None]] = {}
    versions: dict[str, str]
    peak_bytes: int

    def by_partition(self) -> dict[TopicPartition, ManifestPartition]:
        """Return what the manifest says of each partition."""
        return {p.topic_partition: p for p in self.partitions}


def dump(manifest: Manifest) -> str:
    """Return the content of manifest.json."""
    content = manifest.model_dump(mode="json", by_alias=True)
    if not manifest.run:  # earlier versions refuse unknown fields
        del content["run"]
    return json.dumps(content, indent=1) + "\n"


def load(text: str, where: str) -> Manifest:
    """Return the manifest in a text. where: the file, for errors. Raises UsageError."""
    try:
        content = json.loads(text)
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            if isinstance(schema, str) and schema.startswith(SCHEMA.rpartition("/")[0]):
                raise UsageError(
                    f"a manifest of another version: {schema[:60]!r}",
                    where=where,
                    remedy=f"this eoctl reads {SCHEMA}",
                )
            raise UsageError("not a manifest of a state", where=where)
        return Manifest.model_validate(content)
    except (ValueError, ValidationError) as error:
        raise UsageError(f"not a manifest: {str(error).splitlines()[0]}", where=where) from None


def log_facts(config: Mapping[str, str | None], log_start: int, now_ms: int) -> LogFacts:
    """Return a topic's settings as numbers; -1 means no bound."""

    def bound(name: str) -> int | None:
        text = config.get(name)
        value = -1 if text is None else int(text)
        return None if value < 0 else value

    policy = frozenset(
        word.strip() for word in (config.get("cleanup.policy") or "").split(",") if word.strip()
    )
    return LogFacts(log_start, policy, bound("retention.ms"), bound("retention.bytes"), now_ms)


def completeness(
    form: ChangelogFormat,
    config: Mapping[str, str | None] | None,
    log_start: int,
    summary: Mapping[str, Any],
    read_ms: tuple[int, int],
) -> tuple[tuple[str, ...], str | None]:
    """Return why a partition's state is not provably complete, and the proof if it still is.

    config: of the topic; None = it may not be seen. log_start: as it is now. read_ms: when reading
    began, and when its last byte had arrived.
    """
    if config is None:
        return ("its cleanup policy could not be seen",), None
    facts = log_facts(config, log_start, read_ms[1])
    reasons = []
    if log_start > 0:
        reasons.append(f"its log starts at {log_start}: what was below is not known")
    if "delete" in facts.cleanup_policy and (
        facts.retention_ms is not None or facts.retention_bytes is not None
    ):
        reasons.append("its cleanup policy deletes records after a time or above a size")
    proof = form.proves(facts, summary) if reasons else None
    if proof is not None:
        reasons = []
    kept = config.get("delete.retention.ms")
    if "compact" in facts.cleanup_policy and kept is not None:
        took = read_ms[1] - read_ms[0]
        if took > int(kept):
            reasons.append(
                f"reading took {span(took)}, longer than delete.retention.ms: tombstones "
                "may have gone before they were read"
            )
    return tuple(reasons), None if reasons else proof


def of_several_replicas(
    config: Mapping[str, str | None] | None, brokers: Collection[int], missing: int | None
) -> str | None:
    """Return what reading from more than one broker's copy may have cost a partition's state.

    Each replica is compacted on its own. One that lags may still have a value while another has
    already lost its tombstone: read in parts from both, the key comes back. None if no copy has
    lost anything. missing: offsets read without a record; None = the reader cannot say.
    """
    policy = (config or {}).get("cleanup.policy")
    if len(brokers) < 2 or missing == 0 or (policy is not None and "compact" not in policy):
        return None
    names = ", ".join(map(str, sorted(brokers)))
    return (
        f"it was read in parts from brokers {names}, each of which compacts its own copy: "
        "a deleted key may have come back"
    )


def compacted_from_above(
    config: Mapping[str, str | None] | None,
    above: int,
    missing: int | None,
    size: int,
    age_ms: int,
    *,
    at_instant: bool = False,
) -> tuple[str, bool] | None:
    """Return what records above a cut may have cost it, and whether a segment has surely closed.

    Compaction keeps a key's last record, wherever the cut is: with the cut at 1000, K at 50 and at
    500 may go once K at 5000 can be cleaned with them. None if nothing can be lost in this way: a
    policy without compact, nothing above the cut, every offset of the range has its record, or all
    records are younger than min.compaction.lag.ms.

    above: offsets from the cut to the current high watermark. missing: offsets read without a
    record; None = the reader cannot say. size: an estimate of the bytes that may have closed a
    segment: those of the log up to the high watermark, or those above a cut that this run made.
    age_ms: the cut's age when its last byte had arrived; at an instant, the time since that
    instant. The second value is False if neither segment.ms nor segment.bytes has been reached
    since: the active segment is never cleaned, but its age at the cut is unknown. at_instant: the
    cut is older than the log that was found, all of which may have been cleaned since; its segments
    show nothing any more, so the second value is True.
    Source: Kafka's class LogCleanerManager.cleanableOffsets.
    """
    if config is None or "compact" not in (config.get("cleanup.policy") or ""):
        return None
    lag = int(config.get("min.compaction.lag.ms") or 0)
    if above <= 0 or missing == 0 or age_ms <= lag:
        return None
    why = (
        f"{counted(above, 'offset')} above its cut, which was {span(age_ms)} old when it had "
        "been read: records below it may have been compacted away for their sake"
    )
    segment_ms, segment_bytes = (int(config.get(f"segment.{n}") or 0) for n in ("ms", "bytes"))
    return why, at_instant or age_ms > segment_ms or size >= segment_bytes


def whole(parts: Iterable[ManifestPartition]) -> ManifestDigest:
    """Return the sum of the partitions' digests."""
    return ManifestDigest.of(Digest.sum(p.digest.digest() for p in parts))
