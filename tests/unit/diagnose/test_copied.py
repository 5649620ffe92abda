"""What a source's log proves of a byte copy: the same batches, ended by a decided marker."""

import pytest

from recovery.diagnose.copied import (
    Copied,
    CopiedBatch,
    CopyDoubt,
    judge_copy,
    why_proven,
    why_unproven,
)
from recovery.inspect.history import Marker, MarkerOrigin
from recovery.inspect.observation import OpenTransaction

START = 40


def batch(offset: int, epoch: int = 3, digest: bytes = b"as written") -> CopiedBatch:
    return CopiedBatch(offset, offset + 4, epoch, 5, digest)


def ended(
    offset: int = 90, outcome: str = "commit", origin: MarkerOrigin | None = "decided"
) -> Marker:
    return Marker(offset, outcome, 4, 0, 1_000, data_epoch=3, origin=origin)


MINE = [batch(40), batch(50)]
MORE = [*MINE, batch(60), batch(70)]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("origin", ["decided", "ours"])
def test_the_same_batches_get_the_marker_that_the_source_decided(
    outcome: str, origin: MarkerOrigin
) -> None:
    marker = ended(outcome=outcome, origin=origin)
    assert judge_copy(START, MINE, MINE, marker) == Copied(outcome, None, 90, 2, 0, marker)
    cut = judge_copy(START, MINE, MORE, marker)
    assert cut == Copied(outcome, None, 90, 2, 10, marker)
    text = why_proven(OpenTransaction("t", 0, 7, START), cut)
    assert "2 batches of producer id 7 from offset 40 on are the same" in text
    assert f"at offset 90 with the {outcome}" in text
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
        (MINE, MORE, None, "open-in-source", None),
        (MINE, MORE, ended(origin="foreign"), "foreign-marker", 90),
        (MINE, MORE, ended(origin="decision-gone"), "decision-gone", 90),
        (MINE, MORE, ended(origin=None), "decisions-not-read", 90),
    ],
)
def test_anything_else_proves_nothing_and_says_what_to_do(
    mine: list[CopiedBatch],
    theirs: list[CopiedBatch],
    marker: Marker | None,
    doubt: CopyDoubt,
    at: int | None,
) -> None:
    judged = judge_copy(START, mine, theirs, marker)
    assert (judged.outcome, judged.doubt, judged.at) == (None, doubt, at)
    why, remedy = why_unproven(judged)
    assert "{" not in why
    assert remedy
    if at is not None and doubt != "epochs-differ":
        assert f"offset {at}" in why


def test_the_order_of_the_source_counts() -> None:
    """The mirror has a batch less in between: it is no copy, whatever comes after it."""
    judged = judge_copy(START, [batch(40), batch(60)], MORE, ended())
    assert (judged.doubt, judged.at) == ("not-the-same", 60)
