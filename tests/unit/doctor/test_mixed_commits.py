"""Groups that commit in transactions and outside: which records are a finding, and which are not.

A case is a log of one partition of `__consumer_offsets`, a letter each: T a commit in a
transaction, P one outside, E the group is empty, J a member joins, D its offset is deleted, X the
group is deleted, O a record of another kind, ? a group's record of an unknown version.
"""

import struct

import pytest

from eoctl.kafka.read.chunks import Chunk, Range
from eoctl.kafka.read.recent_log import OF_RECORDS, Records, Tail, Tails
from eoctl.render.doctor_words import commit_notes, harm_of, remedy_of, sign_words
from recovery.doctor.commit_rules import mixed_commits
from recovery.doctor.commit_ways import commit_ways, group_records
from recovery.doctor.findings import Finding
from recovery.doctor.narrowing import narrowed, shown
from recovery.doctor.rules import RULES
from recovery.facts import Missing
from recovery.formats.consumer_offsets import OffsetKey
from recovery.formats.reader import CorruptError
from recovery.values import replace
from tests.unit.doctor_facts import NOW, healthy
from tests.unit.formats_build import ABORT, COMMIT, Item, batch, marker

SALES = OffsetKey("sales", "orders", 3)
RULE = next(rule for rule in RULES if rule.name == "mixed-commits")


def text(words: str) -> bytes:
    return struct.pack(">h", len(words)) + words.encode()


def offset_key(key: OffsetKey) -> bytes:
    return b"\0\1" + text(key.group) + text(key.topic) + struct.pack(">i", key.partition)


def group_value(members: int) -> bytes:
    """GroupMetadataValue, version 2."""
    nobody = text("m") + text("app") + text("/10.0.0.7") + struct.pack(">iiii", 1, 1, 0, 0)
    head = b"\0\2" + text("consumer") + struct.pack(">i", 1) + b"\xff\xff" * 2
    return head + struct.pack(">qi", NOW, members) + nobody * members


OFFSET_VALUE = b"\0\3" + struct.pack(">qi", 5, -1) + text("") + struct.pack(">q", NOW)


def log(letters: str, key: OffsetKey = SALES, *, start: int = 0, newer: bool = False) -> bytes:
    """A case as bytes, from an offset on. newer: a group of KIP-848's protocol."""
    each = enumerate(letters, start)
    return b"".join(one(offset, letter, key, newer=newer) for offset, letter in each)


def one(offset: int, letter: str, key: OffsetKey = SALES, *, newer: bool = False) -> bytes:
    time = NOW + offset
    if letter in "TPD":
        value = None if letter == "D" else OFFSET_VALUE
        item = Item(0, time, offset_key(key), value)
        producer = (7, 0, 0) if letter == "T" else (-1, -1, -1)
        return batch(offset, [item], producer=producer, transactional=letter == "T")
    if letter == "O":
        return batch(offset, [Item(0, time, b"\0\3" + text(key.group), b"\0\0")])
    if newer:
        return member(offset, "member-1", joins=letter == "J")
    value = {"E": group_value(0), "X": None, "J": group_value(2), "?": b"\0\5what"}[letter]
    return batch(offset, [Item(0, time, b"\0\2" + text(key.group), value)])


def member(offset: int, name: str, *, joins: bool, kind: int = 5) -> bytes:
    """ConsumerGroupMemberMetadata; 19: StreamsGroupMemberMetadata."""
    key = struct.pack(">h", kind) + text(SALES.group) + text(name)
    return batch(offset, [Item(0, NOW, key, b"\0\0" if joins else None)])


def found(*logs: bytes) -> list[Finding]:
    records = [r for number, data in enumerate(logs) for r in group_records(data, number)]
    return list(mixed_commits(healthy(commit_ways=commit_ways(records))))


@pytest.mark.parametrize(
    ("letters", "turns"),
    [
        ("TPTPT", 2),  # a member with enable.auto.commit
        ("TTPPTTTPTPPT", 3),
        ("PTPTPT", 2),
        ("JTPTPT", 2),
        ("JTPTPTE", 2),
        ("EPJTPTPT", 2),
        ("ETJTPT?PT", 2),
        ("TPTDPT", 2),
        ("TPETJPT", 2),  # an abandoned producer commits later than its member left
        ("TPOTPT", 2),
        ("E?TPTPT", 2),  # who is in the group is not known
    ],
)
def test_both_ways_by_turns_are_found(letters: str, turns: int) -> None:
    [finding] = found(log(letters))
    assert (finding.kind, finding.name, finding.state) == ("group", "sales", "finding")
    [sign] = finding.signs
    assert sign.data["turns"] == turns
    assert sign.data["last_plain_at"] == (0, letters.rindex("P"))


@pytest.mark.parametrize(
    "letters",
    [
        "",
        "TTTTTT",
        "PPPPPP",
        "PPPTTT",  # moved to transactions
        "TTTPPP",
        "PPTTPP",
        "TTPTT",  # a tool's one reset, as far as the records show
        "TTPPPTT",
        "PTPTP",  # only one between two transactions
        "TEPJTEPJTEPJT",  # reset while the group had no members, again and again
        "TEPPJTEPPJT",
        "TXPJTXPJTXPJT",
        "TDTDTDT",  # its offsets were deleted
        "JTEDJTEDJT",
    ],
)
@pytest.mark.parametrize("newer", [False, True])
def test_one_way_and_what_a_tool_does_are_not(letters: str, newer: bool) -> None:
    assert found(log(letters, newer=newer)) == []


def test_a_member_that_remains_is_no_empty_group() -> None:
    comes, leaves = (member(n, "member-2", joins=n == 1, kind=19) for n in (1, 2))
    stays = member(0, "member-1", joins=True, kind=19)
    assert [f.name for f in found(stays + comes + leaves + log("TPTPT", start=3))] == ["sales"]
    left = comes + leaves + log("TPTPT", start=3)
    assert found(left) == [], "as far as the records name members, nobody is in the group"


def test_markers_say_nothing_and_an_aborted_commit_counts() -> None:
    aborted = (marker(3, 7, COMMIT), log("PT", start=4), marker(6, 7, ABORT))
    assert [f.name for f in found(b"".join((log("TPT"), *aborted)))] == ["sales"]


@pytest.mark.parametrize(("given", "expected"), [(NOW - 5, NOW - 5), (-1, NOW)])
def test_the_time_is_the_record_s_own_else_its_batch_s(given: int, expected: int) -> None:
    item = Item(0, given, offset_key(SALES), OFFSET_VALUE)
    [found] = group_records(batch(0, [item], max_timestamp=NOW), 0)
    assert found.timestamp == expected


def test_a_damaged_key_is_no_evidence() -> None:
    with pytest.raises(CorruptError):
        list(group_records(batch(0, [Item(0, NOW, b"\0\1\0\x09cut")]), 0))


def test_groups_and_their_partitions_are_judged_apart() -> None:
    other, third = (OffsetKey("sales", "orders", number) for number in (4, 1))
    assert found(log("TTTT") + log("PPPP", other, start=4)) == []
    parts = (log("TPTPT"), log("TPTPT", other, start=5), log("TPTPTPT", third, start=10))
    findings = found(b"".join(parts), log("TPTPT", OffsetKey("payments", "orders", 3)))
    assert [f.name for f in findings] == ["payments", "sales"]
    data = findings[1].signs[0].data
    assert (data["partition"], data["turns"], data["partitions"]) == (1, 3, 3)


def test_its_words() -> None:
    [finding] = found(log("TTPPTPT"))
    [sign] = finding.signs
    assert sign_words(sign) == (
        "orders:3: 3 commits outside of transactions and 4 inside, by turns: 2 times some outside "
        "came between two inside; the last outside at 2023-11-14T22:13:20.005Z, offset 5 of "
        "__consumer_offsets:0"
    )
    assert sign_words(replace(sign, data={**sign.data, "partitions": 2})).endswith(
        "; so too 1 other partition"
    )
    assert "no transaction put it" in harm_of("mixed-commits", finding)
    assert "sendOffsetsToTransaction" in remedy_of("mixed-commits", finding)


DENIED = Missing("topic", "TOPIC_AUTHORIZATION_FAILED", "not read", topic="__consumer_offsets")


def test_what_was_not_read_is_unknown_with_the_right() -> None:
    facts = healthy(missing_commits=(DENIED,))
    [finding] = mixed_commits(facts)
    assert (finding.state, finding.lacks) == ("unknown", "__consumer_offsets: READ")
    assert DENIED in facts.missing
    assert (
        remedy_of("mixed-commits", finding) == "Grant READ on __consumer_offsets, then ask again."
    )


def test_only_a_named_group() -> None:
    records = [*group_records(log("TPTPT"), 0)]
    facts = healthy(commit_ways=commit_ways(records))
    for names, expected in ((("sales",), ["sales"]), (("payments",), []), ((), ["sales"])):
        mine = narrowed(healthy(named=names, commit_ways=facts.commit_ways), names)
        assert [
            f.name for _, f in shown(mine, [(RULE, f) for f in mixed_commits(mine)])
        ] == expected


def test_what_the_bounds_left_out_is_said() -> None:
    topic = "__consumer_offsets"
    ranges = tuple(Range(topic, number, 0, 5) for number in range(2))
    sink = Records(lambda part, n: group_records(part.data, n))
    tail = Tail(Tails(topic, 50, NOW - 1, OF_RECORDS, ranges, frozenset({0})), sink)
    tail.take(Chunk(topic, 0, 0, 5, log("TPTPT"), None, 9, 9, 0))
    assert [r.offset for r in sink.records] == [0, 1, 2, 3, 4]
    assert tail.read_from == NOW
    assert commit_notes(healthy(now=NOW)) == []
    back, end = commit_notes(healthy(commits_from=NOW - 42_000, commits_unfinished=len(tail.ends)))
    assert back == (
        "mixed-commits: only the last 42 s were read, since __consumer_offsets has more "
        "records of the last 1 h than are read in one look"
    )
    assert "1 partition of __consumer_offsets not read to the end" in end
