"""`audit mirror-transactions` where a mirror holds byte copies: its open transactions, each as the
source decided it, and what is cut if only a bundle of the source is left.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from eoctl.engine.audit_reading import read_transactions
from eoctl.host.clock import now_ms
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit.mirror import EARLIEST
from eoctl.operations.audit.mirror_rows import cut_row, unproven
from eoctl.operations.audit.ranges import WATERMARK, AuditOptions, Resolved, resolve
from eoctl.operations.audit.transactions import endings_of
from eoctl.operations.diagnose.copied import compared_with_source
from eoctl.operations.diagnose.judging import diagnose, look_again
from eoctl.operations.inspect.history_answer import read_state_logs, unread
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.inspect.offline import Offline
from eoctl.operations.inspect.source import StateLogs
from eoctl.render.shell import command
from eoctl.render.verdicts.remedy_words import remedy_words
from eoctl.settings.context import Context
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import Bundle
from recovery.answers import Answer, error_rows
from recovery.audit.audit_rows import MirrorOpenRow
from recovery.audit.failover import mirror_names
from recovery.audit.mirror_copies import (
    GivenOut,
    JudgedCopies,
    OpenCopy,
    SourceDecisions,
    cut_in_copies,
    given_out,
)
from recovery.audit.transaction_facts import Endings, coverage
from recovery.diagnose.copied import Copied, why_unproven
from recovery.diagnose.diagnosis import Judged
from recovery.errors import EoctlError, UsageError
from recovery.facts import Missing, TopicPartition
from recovery.formats.transaction_state import MAX_EPOCH
from recovery.inspect.history import Decision, StateLog
from recovery.inspect.observation import OpenTransaction, Settings
from recovery.quoting import some
from recovery.remedy.repairs import refusal_of, undecided_refused
from recovery.selectors import Selector, parse_selector
from recovery.times import rfc3339
from recovery.values import Value, replace

PAUSE_SECONDS = 5.0
"""Between two looks at what may be open without an owner."""
_NOT_OWNED = ("unknown", "orphan")


class MirrorTransactionsRequest(Value):
    """selectors: of the source's topics. names: topics → their mirrors, where names do not tell.

    cluster: the mirror's. source: the source's; None = it is a bundle. skew: how far brokers'
    clocks may differ, ms.
    """

    selectors: tuple[Selector, ...]
    cluster: Context
    source: Context | None
    skew: int
    names: Mapping[str, str] = {}


async def mirrors_of(
    topics: Collection[str], mirror: Cluster, request: MirrorTransactionsRequest
) -> tuple[dict[str, str], list[Missing]]:
    """Return the mirror of each topic, and those topics that have none or several."""
    there = (await mirror.metadata(None)).topics
    usual = [name for name, t in there.items() if t.error is None and not t.internal]
    own = sorted(topic for topic in topics if not topic.startswith("__"))
    names: dict[str, str] = {}
    missing: list[Missing] = []
    for topic, alike in mirror_names(own, usual, request.names).items():
        if len(alike) == 1:
            names[topic] = alike[0]
            continue
        text = f"several topics may be its mirror: {some(alike)}" if alike else "has no mirror "
        text += "" if alike else "of its name that you may see"
        missing.append(Missing("topic", "NOT_READ", f"{text}; name it with --map", topic=topic))
    return names, missing


async def open_copies(
    source: Cluster, mirror: Cluster, names: Mapping[str, str], request: MirrorTransactionsRequest
) -> tuple[list[MirrorOpenRow], list[Missing]]:
    """Return what is open in the mirror without an owner there, as the source's log decides it.

    What a coordinator of the mirror owns is its replicator's, and left out. The mirror is asked
    again after the source was read: what it ended meanwhile is left out too.
    """
    scope = Scope(tuple(parse_selector(copy) for copy in names.values()))
    settings = Settings(
        clock_skew=request.skew, two_phase_patterns=request.cluster.two_phase_patterns
    )
    diagnosis = await diagnose(mirror, scope, settings, pause=PAUSE_SECONDS) if names else None
    if diagnosis is None:
        return [], []
    began, topics = time.monotonic(), {copy: topic for topic, copy in names.items()}
    missing = list(diagnosis.missing)
    may_be = [one for one in diagnosis.judged if _may_be_decided_there(one)]
    read = {
        one.about: await _of_source(source, mirror, one.about, topics[one.about.topic], request)
        for one in may_be
    }
    if may_be:
        await asyncio.sleep(max(0.0, began + PAUSE_SECONDS - time.monotonic()))
        may_be = [one for one in await look_again(mirror, may_be, settings) if one is not None]
    rows: list[MirrorOpenRow] = []
    for one in [*(one for one in diagnosis.judged if one.about not in read), *may_be]:
        found = read.get(one.about)
        if (kept := _kept_here(one)) is not None:
            # what has an owner here is decided here
            missing += [_unknown(one.about, kept)] if one.verdict.name in _NOT_OWNED else []
        elif isinstance(found, MirrorOpenRow):
            rows.append(found)
        elif found is not None:
            missing.append(found)
    return rows, missing


def _may_be_decided_there(judged: Judged) -> bool:
    """Return True if nobody in the mirror decides it, as far as one look shows."""
    about = judged.about
    why = refusal_of(judged.verdict, "resolve", by_source=True)
    undecided = why is None or why.code == "seen-once"  # the second look comes after the source
    return undecided and None not in (about.producer_id, about.start_offset)


async def _of_source(
    source: Cluster,
    mirror: Cluster,
    about: OpenTransaction,
    topic: str,
    request: MirrorTransactionsRequest,
) -> MirrorOpenRow | Missing:
    """Return the row of an open transaction that the source decided, or why it is unknown."""
    try:
        found = await compared_with_source(source, mirror, about, topic, request.skew)
    except EoctlError as error:
        return _unknown(about, error.sentence)
    if found.copied.decision is None:
        return _unknown(about, "; ".join(why_unproven(found.copied)))
    return _open_row(about, topic, found.copied.decision, request, found.copied)


def _kept_here(judged: Judged) -> str | None:
    """Return why the source's decision does not count, by the rules of `txn resolve`."""
    verdict, about = judged.verdict, judged.about
    why = refusal_of(verdict, "resolve", by_source=True) or undecided_refused(judged)
    said = None if why is None else remedy_words(why)
    if said is None and None in (about.producer_id, about.start_offset):
        said = "where it begins was not seen"
    return None if said is None else f"{verdict.rule}: {said}; {remedy_words(verdict.remedy.does)}"


def _unknown(about: OpenTransaction, why: str) -> Missing:
    where = "" if about.start_offset is None else f" from offset {about.start_offset}"
    who = "it" if about.producer_id is None else f"producer id {about.producer_id}"
    text = f"{who} is open in the mirror{where}: {why}"
    return Missing("transaction", "UNPROVEN", text, None, *about.topic_partition)


def _open_row(
    about: OpenTransaction,
    topic: str,
    decision: Decision,
    request: MirrorTransactionsRequest,
    copied: Copied | None = None,
) -> MirrorOpenRow:
    """Return the row, with the command that ends it. copied: by which it is proven.

    Left out is --link-is-stopped, which only the operator can say.
    """
    source, outcome = request.source, decision.outcome
    assert about.producer_id is not None
    assert about.start_offset is not None
    argv = ["eoctl", "txn", "resolve", about.name, "--pid", str(about.producer_id)]
    argv += ["--start-offset", str(about.start_offset), "--outcome", outcome]
    if source is None:
        argv += ["--without-proof"]
    else:
        argv += ["--from-cluster", source.name or "CONTEXT"]
        argv += [] if topic == about.topic else ["--from-topic", topic]
        usual = request.skew == Settings().clock_skew
        argv += [] if usual else ["--clock-skew", f"{request.skew}ms"]
    return MirrorOpenRow(
        topic=topic,
        partition=about.partition,
        mirror_topic=about.topic,
        producer_id=about.producer_id,
        start_offset=about.start_offset,
        outcome=outcome,
        proven=copied is not None,
        transactional_id=decision.transactional_id,
        same_batches=copied.compared if copied else None,
        missing_records=copied.missing if copied else None,
        marker_offset=copied.marker.offset if copied and copied.marker else None,
        command=command([*argv, *request.cluster.argv]),
    )


async def audit_copies(
    mirror: Cluster, path: Path, request: MirrorTransactionsRequest, reading: AuditOptions
) -> Answer:
    """Return the transactions that are cut in byte copies, by the decisions in a bundle.

    Raises UsageError for a file that is no bundle, or one of the mirror's own cluster.
    """
    bundle, _ = bundle_files.read(path)
    if bundle.cluster_id == mirror.cluster_id:
        raise UsageError(
            "the bundle is of the mirror's own cluster",
            where=str(path),
            remedy="name one of the source: --from",
        )
    return await _OfBundle(bundle, mirror, request, reading).answer()


class _OfBundle:
    def __init__(
        self,
        bundle: Bundle,
        mirror: Cluster,
        request: MirrorTransactionsRequest,
        reading: AuditOptions,
    ) -> None:
        self._bundle, self._mirror = bundle, mirror
        self._asked, self._reading = request, reading
        self._missing: list[Missing] = []

    async def answer(self) -> Answer:
        """Read the mirror's log and its coordinators', and judge."""
        began = now_ms()
        facts = await Offline(self._bundle).look(Scope(self._asked.selectors))
        self._missing += [m for m in facts.missing if m.scope == "topic"]
        topics = {p.topic for p in facts.partitions}
        names, nameless = await mirrors_of(topics, self._mirror, self._asked)
        self._missing += nameless
        judged, compared = await self._judged(names)
        self._missing += map(unproven, judged.cut.unproven)
        opened = [self._open(o, names) for o in judged.open]
        return Answer(
            schema="audit-mirror-transactions",
            cluster_id=self._bundle.cluster_id,
            collected_at=began,
            rows=[cut_row(one, names) for one in judged.cut.cut[: self._reading.most]],
            errors=error_rows(self._missing),
            extra={
                "findings": len(judged.cut.cut),
                "partitions": compared,
                "mirror_cluster_id": self._mirror.cluster_id,
                "decisions_until": rfc3339(self._bundle.created_at),
                "open": [row.json_values() for row in opened],
            },
            judging=True,
            finding=bool(judged.cut.cut or opened),
        )

    async def _judged(self, names: Mapping[str, str]) -> tuple[JudgedCopies, int]:
        """Return the judgement, and how many partitions it compares."""
        ranges: dict[TopicPartition, Resolved] = {}
        for topic, copy in names.items():
            found, missing = await resolve(
                self._mirror, [parse_selector(copy)], EARLIEST, WATERMARK
            )
            self._missing += missing
            ranges |= {TopicPartition(topic, r.partition): r for r in found}
        read, failed = await read_transactions(self._mirror, list(ranges.values()), self._reading)
        self._missing += failed
        whole = {p: r for p, r in ranges.items() if r.topic_partition in read}
        copies = endings_of({p: read[r.topic_partition] for p, r in whole.items()})
        own = await self._own(copies, names)
        known = SourceDecisions(
            coverage(self._readable()), self._bundle.created_at, self._asked.skew
        )
        return cut_in_copies(known, copies, {p: r.end for p, r in whole.items()}, own), len(whole)

    def _readable(self) -> list[StateLog]:
        """Return the bundle's logs; what it lacks is noted."""
        history = self._bundle.history
        if not history.everything:
            text = "the bundle was made without --history: it has the decisions of held ids alone"
            self._missing.append(Missing("cluster", "NOT_IN_BUNDLE", text))
        self._missing += history.missing
        self._missing += unread(StateLogs(history.partitions, history.logs))
        return [log for log in history.logs if log.error is None]

    async def _own(self, copies: Endings, names: Mapping[str, str]) -> GivenOut:
        """Return what the mirror's coordinators gave out, by partition of the source.

        If one of their logs could not be read, each id may be one of theirs.
        """
        logs = await read_state_logs(self._mirror, None, ())
        missing = [*logs.missing, *unread(logs)]
        self._missing += missing
        if missing:
            every = {pid: MAX_EPOCH for by_id in copies.values() for pid in by_id}
            return GivenOut(every, frozenset())
        own = given_out(logs.logs)
        topics = {copy: topic for topic, copy in names.items()}
        named = {
            (TopicPartition(topics[where.topic], where.partition), pid, epoch)
            for where, pid, epoch in own.named
            if where.topic in topics
        }
        return replace(own, named=frozenset(named))

    def _open(self, one: OpenCopy, names: Mapping[str, str]) -> MirrorOpenRow:
        about = OpenTransaction(names[one.topic], one.partition, one.producer_id, one.start_offset)
        return _open_row(about, one.topic, one.decision, self._asked)
