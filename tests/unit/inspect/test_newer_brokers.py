"""`context test` of brokers that speak a newer protocol than eoctl knows."""

import asyncio
from typing import Any

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
def test_a_row_says_what_is_newer(
    monkeypatch: pytest.MonkeyPatch, answers: dict[int, Protocol], details: list[str]
) -> None:
    async def answered(_: Any) -> dict[int, Protocol]:
        return answers

    monkeypatch.setattr(permissions, "protocols", answered)
    cluster: Any = None
    rows: list[ContextTestRow] = asyncio.run(permissions._newer(cluster))
    assert [row.detail for row in rows] == details
    assert all(row.sees is None and row.cannot_say for row in rows)
