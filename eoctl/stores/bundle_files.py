"""Bundle files: what the read commands saw of a cluster, so that a file can answer in its place.

The file is gzip over two lines of JSON: a header with the SHA-256 of the second line, and the
facts. The checksum finds damage, not forgery.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection.cluster import TopicMetadata
from eoctl.stores.textfile import write_whole
from recovery.diagnose.contest import Contests
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.verdicts import Verdict, judge
from recovery.diagnose.waiting_records import Waiting
from recovery.doctor.commit_ways import CommitWays
from recovery.doctor.findings import DoctorFacts
from recovery.errors import UsageError
from recovery.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    HasPartition,
    Missing,
    ProducerFacts,
    TopicPartition,
    Transactions,
)
from recovery.formats.consumer_offsets import OffsetKey
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.history import History, StateLog, StateRecord
from recovery.inspect.id_facts import IdFacts
from recovery.inspect.observation import OpenTransaction, Sample, StartBatch
from recovery.values import Value, replace

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

SCHEMA = "eoctl.bundle/v1"
MOST_BYTES = 128 << 20
"""Of the facts, unpacked: a small file can unpack to anything, and its facts take some times as
much memory as their JSON."""
_MOST_HEADER = 4096
_AT_ONCE = 1 << 20


class Origin(Value):
    """The cluster as the user named it, without its properties, so without secrets."""

    name: str | None
    bootstrap_servers: str
    argv: tuple[str, ...]
    read_only: bool
    protected: bool
    two_phase_patterns: tuple[str, ...]
    accept_missing: tuple[str, ...]
    accept_findings: tuple[str, ...] = ()


class SeenSample(Value):
    """A Sample whose transactions are in Bundle.looks: one snapshot serves many partitions."""

    sample: Sample
    look: int


@dataclass(frozen=True, slots=True)
class SeenTransaction:
    """The evidence of a verdict on a transaction; the verdict itself is judged again."""

    about: OpenTransaction
    start: StartBatch | None
    first: SeenSample
    second: SeenSample | None
    history: History | None


@dataclass(frozen=True, slots=True)
class SeenId:
    """The evidence of a verdict on an id that holds no partition."""

    first: IdFacts
    second: IdFacts | None
    record: StateRecord | None


class SeenFacts(Value):
    """Facts, with the producers of each partition as a list."""

    facts: Facts
    producers: tuple[tuple[str, int, tuple[ProducerFacts, ...]], ...]


@dataclass(frozen=True, slots=True)
class SeenHistory:
    """The records of `__transaction_state` about some ids; everything: about all ids.

    partitions: how many that topic has.
    """

    partitions: int
    logs: tuple[StateLog, ...]
    missing: tuple[Missing, ...]
    everything: bool
    ids: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()


class SeenRecords(HasPartition, Value):
    """Batches of one partition that a bundle took along.

    first_offset: the first requested; end_offset: after the last batch. Of a plan's, batches before
    its last markers may be missing. records: of data, without markers. data: the batches in base64,
    compressed as the log stores them, or with empty records (Bundle.planned).
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    records: int
    data: str


@dataclass(frozen=True, slots=True)
class SeenDoctor:
    """What `doctor` judges, but for the transactions, which are the bundle's; ways as pairs."""

    facts: DoctorFacts
    commit_ways: tuple[tuple[OffsetKey, CommitWays], ...]

    @classmethod
    def of(cls, facts: DoctorFacts) -> "SeenDoctor":
        """Return the facts as a bundle holds them."""
        rest = replace(facts, transactions=Transactions(), commit_ways={})
        return cls(rest, tuple(facts.commit_ways.items()))

    def with_transactions(self, transactions: Transactions) -> DoctorFacts:
        """Return the facts as they were."""
        ways = dict(self.commit_ways)
        return replace(self.facts, transactions=transactions, commit_ways=ways)


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that the read commands saw. Times: epoch ms by the clock of the collecting machine.

    offsets: every partition, and the holders of held ones. producers: of every partition.
    diagnosis: without the verdicts, which are in `open_transactions` and `ids`. waiting and strips:
    (topic, partition, what waits or the log around its LSO) of held partitions. contests, doctor:
    None in bundles of versions that did not look for them. records: only if they were asked for.
    plan_sha256: of the plan that the bundle was made for; planned: the batches that this plan
    stands on, without keys and values; planned_missing: those that could not be taken.
    """

    eoctl_version: str
    created_at: int
    origin: Origin
    cluster_id: str | None
    brokers: tuple[BrokerFacts, ...]
    topics: tuple[TopicMetadata, ...]
    offsets: SeenFacts
    producers: SeenFacts
    transactions: Transactions
    diagnosis: Diagnosis
    open_transactions: tuple[SeenTransaction, ...]
    looks: tuple[Transactions, ...]
    groups: tuple[GroupFacts, ...]
    history: SeenHistory
    groups_missing: tuple[Missing, ...] = ()
    waiting: tuple[tuple[str, int, Waiting | None], ...] = ()
    topic_configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    topic_configs_missing: tuple[Missing, ...] = ()
    expirations: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    expirations_missing: tuple[Missing, ...] = ()
    ids: tuple[SeenId, ...] = ()
    strips: tuple[tuple[str, int, tuple[StripRow, ...] | None], ...] = ()
    contests: Contests | None = None
    doctor: SeenDoctor | None = None
    records: tuple[SeenRecords, ...] = ()
    records_missing: tuple[Missing, ...] = ()
    plan_sha256: str | None = None
    planned: tuple[SeenRecords, ...] = ()
    planned_missing: tuple[Missing, ...] = ()

    @property
    def taken(self) -> tuple[SeenRecords, ...]:
        """Return all batches; where one is in both parts, the one with keys and values counts."""
        return (*self.records, *self.planned)

    @property
    def missing(self) -> list[Missing]:
        """Return all that could not be seen."""
        parts = (
            self.offsets.facts.missing,
            self.producers.facts.missing,
            self.transactions.missing,
            self.diagnosis.missing,
            self.groups_missing,
            self.history.missing,
            self.topic_configs_missing,
            self.expirations_missing,
            self.records_missing,
            self.planned_missing,
            () if self.contests is None else self.contests.missing,
            () if self.doctor is None else self.doctor.facts.missing,
        )
        return list(dict.fromkeys(m for part in parts for m in part))


def is_bundle(path: Path) -> bool:
    """Return True if a file begins as bundles do; False also if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError:
        return False


def listed(facts: Facts) -> SeenFacts:
    """Return facts as a bundle holds them."""
    rows = tuple((*key, states) for key, states in facts.producers.items())
    return SeenFacts(replace(facts, producers={}), rows)


def facts_of(stored: SeenFacts) -> Facts:
    """Return the facts that a bundle holds."""
    return replace(
        stored.facts, producers={TopicPartition(t, p): states for t, p, states in stored.producers}
    )


def without_verdicts(
    d: Diagnosis,
) -> tuple[Diagnosis, tuple[SeenTransaction, ...], tuple[Transactions, ...]]:
    """Return the parts of a diagnosis: the rest, open transactions, and their shared snapshots."""
    looks: dict[int, int] = {}
    looked: list[Transactions] = []

    def seen(sample: Sample) -> SeenSample:
        number = looks.setdefault(id(sample.transactions), len(looked))
        if number == len(looked):
            looked.append(sample.transactions)
        return SeenSample(replace(sample, transactions=Transactions()), number)

    opened = tuple(
        SeenTransaction(
            j.about,
            j.start,
            seen(j.first),
            None if j.second is None else seen(j.second),
            # pydantic does not write columns
            j.history and replace(j.history, markers=tuple(j.history.markers)),
        )
        for j in d.judged
    )
    return replace(d, judged=(), ids=()), opened, tuple(looked)


def judged_again(bundle: Bundle) -> Diagnosis:
    """Return the diagnosis with this version's verdict on each open transaction."""
    patterns = tuple(bundle.diagnosis.settings.two_phase_patterns)
    settings = replace(bundle.diagnosis.settings, two_phase_patterns=patterns)

    def sample(stored: SeenSample) -> Sample:
        return replace(stored.sample, transactions=bundle.looks[stored.look])

    judged: list[Judged] = []
    for t in bundle.open_transactions:
        first = sample(t.first)
        second = None if t.second is None else sample(t.second)
        verdict: Verdict | None = judge(t.about, t.start, first, second, t.history, settings)
        if verdict is not None:
            judged.append(Judged(t.about, t.start, first, second, t.history, verdict))
    ids = tuple(
        JudgedId(i.first, i.second, i.record, judge_id(i.first, i.second, i.record, settings))
        for i in bundle.ids
    )
    return replace(bundle.diagnosis, settings=settings, judged=tuple(judged), ids=ids)


@cache
def _adapter() -> "TypeAdapter[Bundle]":
    from pydantic import TypeAdapter

    return TypeAdapter(Bundle)


_MANY = ("dict", "list", "tuple", "set", "frozenset")


@cache
def _validator() -> "SchemaValidator":
    """Stop at the first wrong item: each error takes some hundred times the item's memory."""
    from pydantic_core import SchemaValidator

    def fail_fast(schema: Any) -> Any:
        if isinstance(schema, dict):
            parts = {name: fail_fast(part) for name, part in schema.items()}
            return parts | {"fail_fast": True} if parts.get("type") in _MANY else parts
        if isinstance(schema, list | tuple):
            return type(schema)(fail_fast(part) for part in schema)
        return schema

    return SchemaValidator(fail_fast(_adapter().core_schema))


def _validated(content: bytes) -> Bundle:
    """Return a valid bundle. Raises ValueError."""
    from pydantic_core import ValidationError, from_json

    facts = from_json(content)  # once: validate_json makes Python objects of it for each error
    try:
        bundle: Bundle = _validator().validate_python(facts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from None
    _check_looks(bundle)
    return bundle


def write(bundle: Bundle, path: Path) -> str:
    """Write the file, mode 600; return its checksum. Raises UsageError, also if the file exists."""
    if path.exists():
        raise UsageError("exists already", where=str(path), remedy="choose another name")
    content = _adapter().dump_json(bundle)
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"the facts are {len(content) >> 20} MiB, and a bundle holds {MOST_BYTES >> 20} MiB",
            where=str(path),
            remedy="leave out --history",
        )
    checksum = hashlib.sha256(content).hexdigest()
    header = json.dumps({"schema": SCHEMA, "sha256": checksum}).encode()
    write_whole(path, gzip.compress(header + b"\n" + content + b"\n", 6, mtime=0), mode=0o600)
    return checksum


def read(path: Path) -> tuple[Bundle, str]:
    """Return the bundle in a file and its checksum. Raises UsageError if it is none or damaged."""
    with _unpacked(path) as file:
        checksum = _checksum(path, file.readline(_MOST_HEADER))
        digest, size, last = hashlib.sha256(), 0, b""
        while part := file.read(_AT_ONCE):  # before any part is kept
            size += len(part)
            if size > MOST_BYTES + 1:
                raise _damaged(path, f"it unpacks to more than {MOST_BYTES >> 20} MiB")
            digest.update(last + part[:-1])
            last = part[-1:]
        if last != b"\n":
            raise _damaged(path, "it is not two lines")
        if digest.hexdigest() != checksum:
            raise _damaged(path, "its checksum is wrong")
    with _unpacked(path) as file:
        file.readline(_MOST_HEADER)
        content = file.read(size)
    try:
        bundle = _validated(content)
    except ValueError as error:
        text = " ".join(str(error).split())[:120]
        raise _damaged(path, f"its facts cannot be read: {text}") from None
    return bundle, checksum


def _checksum(path: Path, header: bytes) -> str:
    """Return the checksum in a bundle's first line. Raises UsageError."""
    if not header.endswith(b"\n"):
        raise _damaged(path, "it is not two lines")
    try:
        fields = json.loads(header)
        schema, checksum = fields["schema"], fields["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path, "it has no header") from None
    if schema != SCHEMA:
        raise UsageError(
            f"a bundle of another version: {str(schema)[:80]!r}",
            where=str(path),
            remedy=f"this eoctl reads {SCHEMA}",
        )
    return str(checksum)


@contextmanager
def _unpacked(path: Path) -> Iterator[gzip.GzipFile]:
    """Yield a file at a bundle's two lines. Raises UsageError, also for errors while reading."""
    try:
        with gzip.open(path) as file:
            yield file
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise UsageError("not a bundle, or a damaged one", where=str(path)) from None
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except EOFError:
        raise _damaged(path, "it is cut off") from None
    except zlib.error:
        raise _damaged(path, "it does not unpack") from None


def _check_looks(bundle: Bundle) -> None:
    for t in bundle.open_transactions:
        for sample in (t.first, t.second):
            if sample is not None and not 0 <= sample.look < len(bundle.looks):
                raise ValueError("a sample of no look")


def _damaged(path: Path, how: str) -> UsageError:
    return UsageError(
        f"a damaged bundle: {how}", where=str(path), remedy="copy it again from where it was made"
    )
