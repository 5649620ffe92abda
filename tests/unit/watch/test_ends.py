"""How many transactions ended between two lists of transactional ids: never more than did."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.inspect.cluster_rows import TxnListRow
from recovery.watch.ends import Ends, ends_between


def row(
    state: str | None, start: int | None, epoch: int | None = 0, pid: int = 1, name: str = "a"
) -> TxnListRow:
    return TxnListRow(
        transactional_id=name,
        coordinator=1,
        producer_id=pid,
        producer_epoch=epoch,
        state=state,
        timeout_ms=60_000,
        start_timestamp=start,
        age_seconds=None,
        partitions=None,
    )


@pytest.mark.parametrize(
    ("before", "after", "ends"),
    [
        pytest.param(row("Ongoing", 5), row("Ongoing", 5), Ends(), id="still open"),
        pytest.param(row("Ongoing", 5), row("PrepareCommit", 5), Ends(1, 1), id="decided"),
        pytest.param(row("Ongoing", 5), row("CompleteAbort", 5), Ends(1, 0, 1), id="aborted"),
        pytest.param(
            row("PrepareCommit", 5), row("CompleteCommit", 5), Ends(), id="counted before"
        ),
        pytest.param(row("CompleteCommit", 5), row("CompleteCommit", 5), Ends(), id="at rest"),
        pytest.param(row("CompleteCommit", 5), row("CompleteCommit", 9), Ends(1, 1), id="the next"),
        pytest.param(row("Ongoing", 5), row("CompleteCommit", 9), Ends(2, 1), id="both ended"),
        pytest.param(row("Ongoing", 5), row("Ongoing", 9), Ends(1), id="ended, how is not told"),
        pytest.param(row("Ongoing", 5), row("Empty", None), Ends(1), id="initialised anew"),
        pytest.param(row("CompleteCommit", 5), row("Empty", None, 1), Ends(), id="no transaction"),
        pytest.param(row("Ongoing", 5, 3), row("Ongoing", 9, 43), Ends(40), id="epochs of v2"),
        pytest.param(
            row("CompleteCommit", 5, 3), row("CompleteAbort", 9, 43), Ends(40, 0, 1), id="v2, last"
        ),
        pytest.param(
            row("Ongoing", 5, 9, pid=1),
            row("CompleteCommit", 9, 0, pid=2),
            Ends(2, 1),
            id="new pid",
        ),
        pytest.param(row(None, None), row("CompleteCommit", 5), Ends(), id="was not seen"),
        pytest.param(row("Ongoing", 5), row(None, None, None), Ends(), id="is not seen"),
    ],
)
def test_between_two_looks(before: TxnListRow, after: TxnListRow, ends: Ends) -> None:
    assert ends_between([before], [after], all_before=True) == ends


def test_an_id_that_was_not_there_counts_only_if_the_list_before_was_whole() -> None:
    new = [row("CompleteCommit", 5)]
    assert ends_between([], new, all_before=True) == Ends(1, 1)
    assert ends_between([], new, all_before=False) == Ends()


@given(
    outcomes=st.lists(st.booleans(), max_size=40),
    looks=st.sets(st.integers(0, 120)),
    v2=st.booleans(),
)
def test_never_more_than_ended(outcomes: list[bool], looks: set[int], v2: bool) -> None:
    """One producer, step by step through three states each; some of the steps are looked at."""
    states = [row("Empty", None)]
    for n, commits in enumerate(outcomes):
        word = "Commit" if commits else "Abort"
        states += [
            row("Ongoing", n, n * v2),
            row(f"Prepare{word}", n, (n + 1) * v2),
            row(f"Complete{word}", n, (n + 1) * v2),
        ]
    seen = [states[0], *(states[n] for n in sorted(looks) if n < len(states)), states[-1]]
    total = Ends()
    for before, after in pairwise(seen):
        total += ends_between([before], [after], all_before=True)
    assert total.ended <= len(outcomes)
    assert total.commits <= sum(outcomes)
    assert total.aborts <= len(outcomes) - sum(outcomes)
    if v2:
        assert total.ended == len(outcomes)
