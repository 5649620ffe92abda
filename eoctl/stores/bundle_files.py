"""Bundle files: what the read commands saw of a cluster, in one file that answers in its place.

The file is gzip over two lines of JSON: a header with the SHA-256 of the second line, and the
facts. The checksum finds damage, not forgery.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.kafka.cluster import TopicMetadata
from eoctl.stores.textfile import write_whole
from recovery.diagnosis import Diagnosis, Judged
from recovery.errors import UsageError
from recovery.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    Missing,
    ProducerFacts,
    Transactions,
)
from recovery.history import History, StateLog
from recovery.observation import OpenTransaction, Sample, StartBatch
from recovery.verdicts import Verdict, judge
from recovery.waiting import Waiting

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA = "eoctl.bundle/v1"
MOST_BYTES = 4 << 30
"""More than this is no bundle: a small file can unpack to anything."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The cluster as it was named, without its properties: no secret is among these."""

    name: str | None
    bootstrap_servers: str
    argv: tuple[str, ...]
    read_only: bool
    protected: bool
    two_phase_patterns: tuple[str, ...]
    accept_missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeenSample:
    """A Sample whose transactions stand in Bundle.looks: one look serves many partitions."""

    sample: Sample
    look: int


@dataclass(frozen=True, slots=True)
class SeenTransaction:
    """What a verdict is judged from; the verdict itself is judged anew."""

    about: OpenTransaction
    start: StartBatch | None
    first: SeenSample
    second: SeenSample | None
    history: History | None


@dataclass(frozen=True, slots=True)
class SeenFacts:
    """Facts, with the producers of each partition as a list."""

    facts: Facts
    producers: tuple[tuple[str, int, tuple[ProducerFacts, ...]], ...]


@dataclass(frozen=True, slots=True)
class SeenHistory:
    """What `__transaction_state` recorded of some ids; everything: of all ids.

    partitions: how many that topic has.
    """

    partitions: int
    logs: tuple[StateLog, ...]
    missing: tuple[Missing, ...]
    everything: bool
    ids: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that the read commands saw. Times: epoch ms by the clock of the machine that looked.

    offsets: every partition, and who holds the held ones. producers: of every partition.
    diagnosis: without its judged transactions, which stand in `open_transactions`.
    waiting: (topic, partition, what waits) of held partitions.
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

    @property
    def missing(self) -> list[Missing]:
        """All that could not be seen."""
        parts = (
            self.offsets.facts.missing,
            self.producers.facts.missing,
            self.transactions.missing,
            self.diagnosis.missing,
            self.groups_missing,
            self.history.missing,
            self.topic_configs_missing,
            self.expirations_missing,
        )
        return list(dict.fromkeys(m for part in parts for m in part))


def listed(facts: Facts) -> SeenFacts:
    """Facts as a bundle holds them."""
    rows = tuple((*key, found) for key, found in facts.producers.items())
    return SeenFacts(replace(facts, producers={}), rows)


def facts_of(seen: SeenFacts) -> Facts:
    """The Facts again."""
    return replace(seen.facts, producers={(t, p): found for t, p, found in seen.producers})


def without_verdicts(
    d: Diagnosis,
) -> tuple[Diagnosis, tuple[SeenTransaction, ...], tuple[Transactions, ...]]:
    """A diagnosis taken apart: the rest, each open transaction, and the looks they share."""
    looks: dict[int, int] = {}
    found: list[Transactions] = []

    def seen(sample: Sample) -> SeenSample:
        number = looks.setdefault(id(sample.transactions), len(found))
        if number == len(found):
            found.append(sample.transactions)
        return SeenSample(replace(sample, transactions=Transactions()), number)

    opened = tuple(
        SeenTransaction(
            j.about, j.start, seen(j.first), None if j.second is None else seen(j.second), j.history
        )
        for j in d.judged
    )
    return replace(d, judged=()), opened, tuple(found)


def judged_again(bundle: Bundle) -> Diagnosis:
    """The diagnosis with a verdict on each open transaction, by the rules of this version."""
    patterns = tuple(bundle.diagnosis.settings.two_phase_patterns)
    settings = replace(bundle.diagnosis.settings, two_phase_patterns=patterns)

    def sample(seen: SeenSample) -> Sample:
        return replace(seen.sample, transactions=bundle.looks[seen.look])

    judged: list[Judged] = []
    for t in bundle.open_transactions:
        first = sample(t.first)
        second = None if t.second is None else sample(t.second)
        verdict: Verdict | None = judge(t.about, t.start, first, second, t.history, settings)
        if verdict is not None:
            judged.append(Judged(t.about, t.start, first, second, t.history, verdict))
    return replace(bundle.diagnosis, settings=settings, judged=tuple(judged))


@cache
def _adapter() -> "TypeAdapter[Bundle]":
    from pydantic import TypeAdapter

    return TypeAdapter(Bundle)


def write(bundle: Bundle, path: Path) -> str:
    """Write the file, mode 600; the checksum. Raises UsageError, also if the file exists."""
    if path.exists():
        raise UsageError("exists already", where=str(path), remedy="choose another name")
    content = _adapter().dump_json(bundle)
    checksum = hashlib.sha256(content).hexdigest()
    header = json.dumps({"schema": SCHEMA, "sha256": checksum}).encode()
    write_whole(path, gzip.compress(header + b"\n" + content + b"\n", 6, mtime=0), mode=0o600)
    return checksum


def read(path: Path) -> tuple[Bundle, str]:
    """The bundle in a file and its checksum. Raises UsageError when it is none, or damaged."""
    header, content = _lines(path)
    try:
        said = json.loads(header)
        schema, checksum = said["schema"], said["sha256"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(path, "it has no header") from None
    if schema != SCHEMA:
        raise UsageError(
            f"a bundle of another version: {str(schema)[:80]!r}",
            where=str(path),
            remedy=f"this eoctl reads {SCHEMA}",
        )
    if hashlib.sha256(content).hexdigest() != checksum:
        raise _damaged(path, "its checksum is wrong")
    try:
        bundle = _adapter().validate_json(content)
        _check_looks(bundle)
    except ValueError as error:
        text = " ".join(str(error).split())[:120]
        raise _damaged(path, f"its facts cannot be read: {text}") from None
    return bundle, str(checksum)


def _lines(path: Path) -> tuple[bytes, bytes]:
    try:
        with gzip.open(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise UsageError("not a bundle, or a damaged one", where=str(path)) from None
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except EOFError:
        raise _damaged(path, "it is cut off") from None
    except zlib.error:
        raise _damaged(path, "it does not unpack") from None
    header, newline, content = data.partition(b"\n")
    if len(data) > MOST_BYTES or not newline or not content.endswith(b"\n"):
        raise _damaged(path, "it is not two lines")
    return header, content[:-1]


def _check_looks(bundle: Bundle) -> None:
    for t in bundle.open_transactions:
        for sample in (t.first, t.second):
            if sample is not None and not 0 <= sample.look < len(bundle.looks):
                raise ValueError("a sample of no look")


def _damaged(path: Path, how: str) -> UsageError:
    return UsageError(
        f"a damaged bundle: {how}", where=str(path), remedy="copy it again from where it was made"
    )
