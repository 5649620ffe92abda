"""What a source's log proves of a byte copy: the same batches, ended by a decided marker."""

from collections.abc import Sequence

import pytest

from recovery.diagnose.copied import (
    Comparison,
    Copied,
    CopiedBatch,
    CopyDoubt,
    decided,
    why_proven,
    why_unproven,
)
from recovery.facts import TopicPartition
from recovery.inspect.history import Decision, Marker
from recovery.inspect.observation import OpenTransaction
from recovery.values import replace

START = 40


def batch(offset: int, epoch: int = 3, digest: bytes = b"as written") -> CopiedBatch:
    return CopiedBatch(offset, offset + 4, epoch, 5, 900 + offset, digest)


def ended(offset: int = 90, outcome: str = "commit") -> Marker:
    return Marker(offset, outcome, 4, 0, 1_000, data_epoch=3)


def judged(
    mine: Sequence[CopiedBatch], theirs: Sequence[CopiedBatch], marker: Marker | None
) -> Copied:
    """Both logs side by side, as they are read."""
    comparison = Comparison(START)
    items: list[CopiedBatch | Marker] = [*theirs, *([] if marker is None else [marker])]
    log = iter(items)
    for one in mine:
        if (doubt := comparison.differs(one, next(log, None))) is not None:
            return doubt
    for other in log:
        if isinstance(other, Marker):
            return comparison.ended(other)
        comparison.goes_on(other)
    return comparison.ended(None)


MINE = [batch(40), batch(50)]
MORE = [*MINE, batch(60), batch(70)]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_the_same_batches_get_the_marker_that_the_source_decided(outcome: str) -> None:
    marker = ended(outcome=outcome)
    # nothing is proven before the decision is known
    assert judged(MINE, MINE, marker) == Copied(None, "decisions-not-read", 90, 2, 0, marker)
    cut = judged(MINE, MORE, marker)
    assert cut == Copied(None, "decisions-not-read", 90, 2, 10, marker)
    here = (TopicPartition("t", 0),)
    decision = Decision("app", outcome, 7, 4, here, 0, 12, 990, 2, 900, 1_010)
    proven = decided(cut, decision)
    assert proven == replace(cut, outcome=outcome, doubt=None, decision=decision)
    text = why_proven(OpenTransaction("t", 0, 7, START), proven)
    assert "2 batches of producer id 7 from offset 40 on are the same" in text
    assert f"at offset 90 with the {outcome} that its coordinator decided for app" in text
    assert "10 more records that the mirror lacks" in text


OTHER = batch(50, digest=b"written again")


@pytest.mark.parametrize(
    ("mine", "theirs", "marker", "doubt", "at"),
    [
        ([], MINE, ended(), "start-not-there", 40),  # retention took all of it
        (MINE[1:], MINE, ended(), "start-not-there", 40),  # and its first batch
        (MINE, [], ended(), "not-the-same", 40),  # a recreated topic, or another producer
        (MINE, [], None, "not-the-same", 40),
        (MINE, [MINE[0], OTHER], ended(), "not-the-same", 50),
        ([MINE[0], OTHER], MINE, ended(), "not-the-same", 50),
        (MINE, [batch(40), batch(51)], ended(), "not-the-same", 50),
        (MINE, [batch(40, epoch=2), batch(50)], ended(), "not-the-same", 40),
        (MORE, MINE, ended(), "not-the-same", 60),  # the source's log lost its end
        (MORE, MINE, ended(55), "ended-before", 55),
        ([batch(40), batch(50, 4)], [batch(40), batch(50, 4)], ended(), "epochs-differ", 90),
        (MINE, [*MINE, batch(60, 4)], ended(), "epochs-differ", 90),
        (MINE, MORE, None, "open-in-source", None),
    ],
)
def test_anything_else_proves_nothing_and_says_what_to_do(
    mine: list[CopiedBatch],
    theirs: list[CopiedBatch],
    marker: Marker | None,
    doubt: CopyDoubt,
    at: int | None,
) -> None:
    found = judged(mine, theirs, marker)
    assert (found.outcome, found.doubt, found.at) == (None, doubt, at)
    why, remedy = why_unproven(found)
    assert "{" not in why
    assert remedy
    if at is not None and doubt != "epochs-differ":
        assert f"offset {at}" in why
    # the commonest cause is that this is no copy: no outcome is to be written on a guess then
    if doubt in ("not-the-same", "ended-before", "epochs-differ"):
        assert "audit mirror" in remedy
        assert "--without-proof" not in remedy


@pytest.mark.parametrize(
    ("doubt", "said"),
    [
        ("ours", "eoctl on this host wrote the source's marker at offset 90; which decision"),
        ("foreign-marker", "wrote it with a tool, perhaps with eoctl (this host's"),
    ],
)
def test_a_marker_that_somebody_wrote_there(doubt: CopyDoubt, said: str) -> None:
    why, remedy = why_unproven(Copied(None, doubt, 90, 2, 0, ended()))
    assert said in why
    assert "--without-proof" in remedy


def test_the_order_of_the_source_counts() -> None:
    """The mirror has a batch less in between: it is no copy, whatever comes after it."""
    found = judged([batch(40), batch(60)], MORE, ended())
    assert (found.doubt, found.at) == ("not-the-same", 60)


def test_the_newest_data_is_the_sources() -> None:
    comparison = Comparison(START)
    assert comparison.differs(batch(40), batch(40)) is None
    comparison.goes_on(batch(50))
    assert comparison.newest == 950
