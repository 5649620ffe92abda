"""The partition strip against what other clients see of every offset, and its drawing."""

import uuid
from collections.abc import Callable, Sequence

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.inspect.partition_strip import strip
from eoctl.operations.session.session import with_cluster
from eoctl.render.explain import find
from eoctl.render.strip_drawing import SIGNS, drawn
from eoctl.settings.context import Connect, resolve
from recovery.facts import TopicPartition
from recovery.inspect.cluster_rows import StripRow
from recovery.inspect.strip_stretches import strip_rows
from tests.kafka.offsets_oracle import look
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker
from tui.widgets.lines import line_width, plain

StartLab = Callable[[LabSpec], Lab]
UNCHECKED = {"transaction.partition.verification.enable": "false"}


def kinds(rows: Sequence[StripRow]) -> dict[int, StripRow]:
    """Every offset's stretch; each offset belongs to one."""
    found: dict[int, StripRow] = {}
    for row in rows:
        for offset in range(row.first_offset, row.end_offset):
            assert offset not in found
            found[offset] = row
    return found


def test_every_offset_is_told_as_consumers_see_it(start_lab: StartLab) -> None:
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    again = uuid.uuid4().hex[:6]  # a topic of another try would hold its records
    topic_partitions = [(f"{kind}-{again}", 0) for kind in ("mixed", "orphan", "open")]
    truths = [
        truth
        for (topic, _), kind in zip(topic_partitions, ("mixed", "orphan", "open"), strict=True)
        for truth in break_(lab, kind, topic=topic, partition=0, hold=False)
    ]
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    seen = look(lab, topic_partitions)
    for (topic, partition), truth in zip(topic_partitions, truths, strict=True):
        answer = with_cluster(context, 20, lambda c, t=topic: strip(c, f"{t}:0"))  # type: ignore[misc]
        assert answer.complete
        told = kinds([r for r in answer.rows if isinstance(r, StripRow)])
        oracle = seen[topic, partition]
        assert answer.extra["last_stable_offset"] == oracle.stable
        assert answer.extra["high_watermark"] == oracle.high
        assert sorted(told) == list(range(oracle.log_start, oracle.high))
        for offset, row in told.items():
            if offset in oracle.control:
                assert row.kind == "control"
            elif offset not in oracle.data:
                assert row.kind in ("missing", "plain", "committed", "aborted", "open")
            elif offset < oracle.stable:
                visible = row.kind in ("plain", "committed")
                assert visible == (offset in oracle.visible)
                assert visible or row.kind == "aborted"
            else:
                assert row.kind in ("open", "plain", "committed", "aborted")
        there = oracle.data | oracle.control
        for row in set(told.values()):
            span = range(row.first_offset, row.end_offset)
            assert row.records == len(there.intersection(span)), row
        if truth.kind in ("orphan", "open"):  # as `eoctl explain` draws it, before anything is done
            cells = plain(drawn(list(answer.rows), oracle.stable, oracle.high, 80)[1]).strip()  # type: ignore[arg-type]
            [entry] = find(truth.kind, ("verdict",))
            assert entry.drawing[0].split()[:2] == ["before", cells]
        # what the break wrote says which of the waiting records belong to the open transaction
        mine = {o.offset for o in truth.offsets if o.content == "open"}
        assert mine == {o for o, row in told.items() if row.kind == "open"}
        assert mine


def put(base: int, pid: int, records: int = 1) -> bytes:
    """A transactional batch."""
    items = [Item(n) for n in range(records)]
    return batch(base, items, producer=(pid, 0, 0), transactional=True)


def test_above_the_lso_a_marker_that_follows_decides() -> None:
    log = b"".join(
        [
            put(10, 1, 2),  # open: nothing follows
            put(12, 2),
            put(13, 3),
            marker(14, 2, COMMIT),
            put(15, 2),  # the next transaction of producer 2
            marker(16, 3, ABORT),
            batch(17, [Item(0)]),
        ]
    )
    for read_to, rest in ((18, "open"), (17, "undecided")):
        rows = strip_rows(
            TopicPartition("t", 0),
            (10, 18),
            (),
            [(log, ())],
            lso=10,
            read_to=(10, read_to),
            high_watermark=18,
        )
        found = {o: (r.kind, r.producer_id) for o, r in kinds(rows).items()}
        assert found[10] == found[11] == (rest, 1)
        assert found[12] == ("committed", 2)
        assert found[13] == ("aborted", 3)
        assert found[14] == ("control", 2)
        assert found[15] == (rest, 2)
        assert found[17][0] == "plain"


def test_holes_and_what_was_not_read_are_not_the_same() -> None:
    below = [(put(2, 1) + put(5, 1) + marker(6, 1, ABORT), ((1, 5),))]
    rows = strip_rows(
        TopicPartition("t", 0), (0, 14), below, (), lso=10, read_to=(8, 10), high_watermark=14
    )
    told = [(r.first_offset, r.end_offset, r.kind, r.outcome) for r in rows]
    assert told == [
        (0, 2, "missing", None),
        (2, 3, "committed", None),
        (3, 5, "missing", None),
        (5, 6, "aborted", None),
        (6, 7, "control", "abort"),
        (7, 8, "missing", None),
        (8, 14, "unread", None),
    ]


def test_a_strip_fits_and_shows_the_worst_of_a_cell() -> None:
    rows = [
        StripRow(topic="t", partition=0, first_offset=0, end_offset=700, kind="committed"),
        StripRow(topic="t", partition=0, first_offset=700, end_offset=701, kind="open"),
        StripRow(topic="t", partition=0, first_offset=701, end_offset=1000, kind="plain"),
    ]
    for width in (40, 80, 200):
        lines = drawn(rows, 700, 1000, width)
        assert all(line_width(line) <= width for line in lines[1:3])
        cells = plain(lines[1])[1:]
        assert cells.count("#") == 1
        assert set(cells) == {"=", "#", "-"}
        assert plain(lines[2]).index("^") == plain(lines[1]).index("#"), "the arrow is at the LSO"
        assert "LSO 700" in plain(lines[2])
    assert len({sign for sign, _ in SIGNS.values()}) == len(SIGNS), "a sign says it, not a colour"


def test_a_partition_that_is_not_there_is_missing(start_lab: StartLab) -> None:
    lab = start_lab(LabSpec(name="tui-one", settings=UNCHECKED))
    context = resolve(Connect(bootstrap_server=lab.bootstrap_servers))
    answer = with_cluster(context, 20, lambda c: strip(c, "nowhere:0"))
    assert not answer.rows
    assert [e.error for e in answer.errors] == ["UNKNOWN_TOPIC_OR_PARTITION"]
