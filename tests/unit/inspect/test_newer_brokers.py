"""`context test` of brokers that speak a newer protocol than eoctl knows."""

import pytest

from eoctl.operations.inspect import permissions
from eoctl.settings.context_rows import ContextTestRow
from recovery.doctor.versions import APIS, METADATA, Protocol, releases

NEWEST = list(releases().values())[-1]


def speaking(**changed: int) -> Protocol:
    """The answer of a broker of the newest release that eoctl knows, with some versions changed."""
    has = {**NEWEST, **changed}
    return Protocol(
        {APIS[n]: (0, v) for n, v in has.items() if n in APIS}, {METADATA: has[METADATA]}
    )


@pytest.mark.parametrize(
    ("answers", "details"),
    [
        ({1: speaking()}, []),
        ({1: speaking(EndTxn=4)}, []),
        (
            {1: speaking(), 2: speaking(EndTxn=6, Fetch=19)},
            ["newer than eoctl knows: Fetch 19, EndTxn 6; upgrade eoctl"],
        ),
    ],
)
def test_a_row_says_what_is_newer(answers: dict[int, Protocol], details: list[str]) -> None:
    rows: list[ContextTestRow] = permissions._newer(answers)
    assert [row.detail for row in rows] == details
    assert all(row.sees is None and row.cannot_say for row in rows)


def test_a_row_names_the_requests_that_are_missing() -> None:
    whole = speaking()
    less = Protocol({k: v for k, v in whole.apis.items() if k != APIS["DescribeProducers"]})
    assert permissions._unanswered(permissions._left_out({1: whole})) == []
    [row] = permissions._unanswered(permissions._left_out({1: whole, 2: less}))
    assert row.sees is False
    assert row.detail.startswith("not answered: DescribeProducers (broker 2); ")
    assert row.cannot_say == ["who holds a partition, and so every verdict on it"]
