"""The page of `why`: its parts, in their order, within the terminal, whatever the names."""

from pathlib import Path
from typing import Any, get_args

import pytest

from eoctl.render.explain import ASK, part
from eoctl.render.why import why_lines
from eoctl.render.width import cells
from recovery.diagnose import id_verdicts, verdicts
from recovery.diagnose.diagnosis_rows import (
    EndsRow,
    EvidenceRow,
    OtherwiseRow,
    RemedyRow,
    TxnHangingRow,
    WayRow,
)
from recovery.diagnose.verdicts import VerdictName
from recovery.diagnose.why_rows import OwnerRow, WaitingRow, WaitRow, WhyRow
from recovery.inspect.cluster_rows import HistoryRow, MarkerRow, StripKind, StripRow
from recovery.remedy.ends import OtherwiseCode
from recovery.values import replace

NOW = 1_700_000_000_000  # 2023-11-14T22:13:20Z
GOLDEN = Path(__file__).parents[1] / "golden"
HOSTILE = [
    "x" * 249,
    "\x1b[31mred\x1b[0m",
    "a\nb\r\tc",
    "\u202egnp\u200b",
    "[/x][bold]",
    "你好" * 60,
    " ",
    "  many   blanks  ",
    "\\x1b",
    "😀" * 50,
]


ABORT = (
    "eoctl --context prod-eu txn abort orders:3 --pid 4001 --start-offset 182736450 "
    "--cluster-id 5L6gXyZ_5KQ0r1s2t3u4vw"
)


def hanging(verdict: str = "orphan", action: str = "abort", **more: Any) -> TxnHangingRow:
    given: dict[str, Any] = {
        "topic": "orders",
        "topic_id": "id",
        "partition": 3,
        "leader": 1,
        "producer_id": 4001,
        "producer_epoch": 9,
        "start_batch_epoch": 7,
        "coordinator_epoch": None,
        "transactional_id": None,
        "start_offset": 182736450,
        "last_timestamp": NOW - 840_000,
        "age_seconds": 840.0,
        "age_clock": "producer",
        "timeout_ms": None,
        "start_timestamp": None,
        "state": None,
        "samples": 2,
        "verdict": verdict,
        "rule": "nobody-owns-it",
        "mixed": False,
        "offsets_pending": False,
        "proven_outcome": None,
        "groups": [],
        "evidence": [
            EvidenceRow(code="no-owner", text="no coordinator lists producer id 4001", data={}),
            EvidenceRow(code="no-decision", text="no decision names orders:3", data={}),
        ],
        "remedy": RemedyRow(
            action=action,  # type: ignore[arg-type]
            does="a marker for this producer alone",
            caveats=["the records of this transaction are lost"],
            refused=[["fence", "there is no owner to shut out"]],
            argv=["eoctl"],
            command=ABORT,
        ),
        "ends": ends(verdict) if action == "abort" else None,
    }
    return TxnHangingRow(**given | more)


def way(knows: str | None = None, command: str = ABORT) -> WayRow:
    return WayRow(action="abort", knows=knows, outcome=None, argv=["eoctl"], command=command)


def ends(verdict: str, *known: WayRow, code: str = "never-ends", **data: Any) -> EndsRow:
    now = None if known else way()
    rest = OtherwiseRow(code=code, data=data)
    return EndsRow(way=None, next=now, if_you_know=list(known), otherwise=rest)


def page_row(**more: Any) -> WhyRow:
    held = hanging()
    given: dict[str, Any] = {
        "topic": "orders",
        "topic_id": "id",
        "partition": 3,
        "leader": 1,
        "stuck": True,
        "headline": "STUCK  orphan",
        "log_start_offset": 0,
        "last_stable_offset": 182736450,
        "high_watermark": 182737654,
        "held": 1204,
        "waiting": WaitingRow(
            records=1180,
            mine=37,
            aborted=0,
            other_open=0,
            freed=1143,
            oldest_timestamp=NOW - 840_000,
            at_least=False,
            mine_bytes=4198,
        ),
        "held_by": held,
        "others": [],
        "owner": OwnerRow(
            transactional_id=None,
            coordinator=None,
            clients=[],
            said="none: 50 of 50 coordinator partitions answered, twice",
        ),
        "history": [
            HistoryRow(
                transactional_id="a",
                offset=5,
                coordinator_partition=3,
                timestamp=NOW - 900_000,
                state="CompleteCommit",
                producer_id=4001,
                producer_epoch=7,
                epoch_bump="end",
                timeout_ms=60_000,
                start_timestamp=None,
                client_transaction_version=2,
                previous_producer_id=None,
                next_producer_id=None,
                partitions=[],
                tombstone=False,
            )
        ],
        "groups": [],
        "groups_said": "orders-enricher (lag 0 to LSO, 1204 to HW), "
        "billing (lag 0 to LSO, 9 to HW)",
        "if_you_wait": WaitRow(
            said="it never ends by itself; retention deletes the waiting records in 6d 2h",
            ends_at=None,
            deleted_at=NOW + (6 * 24 + 2) * 3_600_000,
            ending="never",
        ),
        "samples": 2,
        "brokers_up": 3,
        "brokers_known": 3,
    }
    return WhyRow(**given | more)


def lines(row: WhyRow, width: int | None = 80, context: str = "prod-eu", **more: Any) -> list[str]:
    return why_lines(row, context=context, collected_at=NOW, width=width, **more)


def labels(page: list[str]) -> list[str]:
    found = [line[1:14].strip() for line in page if line[:1] == " " and line[1:2].strip()]
    return [label for label in found if label]


@pytest.mark.parametrize(("width", "name"), [(80, "why_80.txt"), (None, "why_piped.txt")])
def test_the_page(width: int | None, name: str) -> None:
    assert "\n".join(lines(page_row(), width)) + "\n" == (GOLDEN / name).read_text()


def test_the_parts_in_their_order() -> None:
    """docs: readers see, held by, owner, groups, if you wait, at stake, remedy, next."""
    page = lines(page_row())
    assert page[0] == "orders:3  STUCK  orphan    prod-eu  22:13:20Z  saw 3/3 brokers"
    assert labels(page) == [
        "readers see",
        "held by",
        "held since",
        "owner",
        "history",
        "because",
        "groups",
        "if you wait",
        "at stake",
        "remedy",
        "but",
        "not",
        "next (shows t",
        "otherwise",
        "ask",
    ]


def test_the_command_that_looks_again_stands_before_the_remedy() -> None:
    again = "eoctl --context prod-eu lso --watch -- orders:3"
    page = lines(page_row(again=again))
    at = page.index(" watch it:")
    assert page[at : at + 4] == [
        " watch it:",
        f"   {again}",
        " next (shows the plan, changes nothing):",
        f"   {ABORT}",
    ]


def test_whoever_knows_more_has_a_command_for_each_answer() -> None:
    """Each stands whole on its line, after what one must know for it; then what is left."""
    known = (way("committed", "eoctl resolve commit"), way("aborted", "eoctl resolve abort"))
    held = hanging("unknown", rule="order-unclear")
    held = replace(held, ends=ends("unknown", *known, code="ask-owner", rule="order-unclear"))
    page = lines(page_row(held_by=held), None)
    assert page[page.index(" if you know more (each shows its plan, changes nothing):") :] == [
        " if you know more (each shows its plan, changes nothing):",
        "   it was committed, and you can show it:",
        "   eoctl resolve commit",
        "   it was aborted, and you can show it:",
        "   eoctl resolve abort",
        " otherwise    write nothing until somebody can show the outcome",
        f" ask          {part('order-unclear', 'rule', ASK)}",
    ]
    assert " next         nothing to run: no log shows which outcome is right" in page


@pytest.mark.parametrize("code", get_args(OtherwiseCode))
@pytest.mark.parametrize("width", [60, 80, None])
def test_every_end_says_why_there_is_nothing_to_run_and_what_is_left(
    code: str, width: int | None
) -> None:
    held = hanging("open", transactional_id="orders-1", ends_in_seconds=600.0, rule="one-sample")
    data = {"partitions": ["orders:3"], "moves": 3, "broker": 2, "transactional_id": "orders-1"}
    held = replace(held, ends=replace(ends("open", code=code, **data), next=None))
    page = lines(page_row(held_by=held), width)
    [at] = [n for n, line in enumerate(page) if line.startswith(" otherwise ")]
    text = " ".join(" ".join(page[at:]).split())
    assert text != f"otherwise {code}", "a code is no sentence"
    assert "None" not in text
    if code not in ("never-ends", "wait-for-coordinator", "coordinator-does-not"):  # has a command
        assert page[at - 1].startswith(" next ") or page[at - 2].startswith(" next ")
        assert "nothing to run now" not in page[at - 1]
    if width is not None:
        assert max(map(cells, page)) <= width


@pytest.mark.parametrize("rule", [*verdicts.RULES, *id_verdicts.RULES], ids=lambda r: r.name)
def test_every_rule_ends_with_a_next_step(
    rule: verdicts.Rule | id_verdicts.IdRule,
) -> None:
    """Whom to ask, what to grant, or that nobody need be asked."""
    again = "eoctl --context prod-eu lso --watch -- orders:3"
    remedy = replace(hanging().remedy, action="none", argv=None, command=None)
    held = hanging(rule.verdict, "none", rule=rule.name, remedy=remedy)
    page = lines(page_row(held_by=held, again=again), None)
    last = labels(page)[-1]
    nobody = str(part(rule.verdict, "verdict", ASK)).startswith("nobody")
    asked = ("watch it:",) if nobody and rule.verdict != "unknown" else ("do", "ask")
    assert last in asked, page


def test_the_log_around_the_lso_is_drawn() -> None:
    """As the dashboard draws it; the LSO stands under the first offset that no reader gets."""
    kinds: list[tuple[int, int, StripKind]] = [
        (182736440, 182736450, "committed"),
        (182736450, 182736487, "open"),
        (182736487, 182737654, "plain"),
    ]
    strip = [
        StripRow(topic="orders", partition=3, first_offset=a, end_offset=b, kind=kind)
        for a, b, kind in kinds
    ]
    page = lines(page_row(strip=strip, last_stable_offset=182736450), 80)
    at = next(n for n, line in enumerate(page) if line.startswith(" the log "))
    head, drawing, arrow, legend = (line[14:] for line in page[at : at + 4])
    assert head == "offsets 182736440 to 182737653, HW 182737654, 19 offsets per cell"
    assert drawing == "###" + "-" * 61  # 19 a cell: the first has of both kinds
    assert arrow == "^ LSO 182736450"
    assert legend == "# open  = committed  - plain"
    assert not any(line.startswith(" the log ") for line in lines(page_row()))


@pytest.mark.parametrize("verdict", get_args(VerdictName))
@pytest.mark.parametrize("width", [40, 80, 200, None])
def test_every_verdict_is_one_page(verdict: str, width: int | None) -> None:
    for held in (
        hanging(verdict),
        hanging(verdict, "none", start_offset=None, producer_id=None, age_seconds=None),
        hanging(verdict, transactional_id="a", state="Ongoing", age_clock="coordinator"),
    ):
        page = lines(page_row(held_by=held, others=[held], headline=f"STUCK  {verdict}"), width)
        assert page[0].startswith(f"orders:3  STUCK  {verdict}")
        assert labels(page)[:2] == ["readers see", "held by"]
        assert f"   {ABORT}" in page
        if width is not None:
            assert max(map(cells, (line for line in page if ABORT not in line))) <= width


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("width", [60, 80, None])
def test_hostile_names_stay_on_their_lines(name: str, width: int | None) -> None:
    held = hanging(
        transactional_id=name,
        state=name,
        evidence=[EvidenceRow(code="a", text=name, data={})],
        remedy=replace(hanging().remedy, does=name, caveats=[name]),
    )
    owner = OwnerRow(transactional_id=name, coordinator=1, clients=[name], said=name)
    page = lines(
        page_row(topic=name, held_by=held, others=[held], owner=owner, groups_said=name),
        width,
        context=name,
    )
    for line in page:
        assert line.isprintable()
    assert len([line for line in page if line.startswith(" readers see")]) == 1
    if width is not None:
        assert max(map(cells, (line for line in page if ABORT not in line))) <= width
    assert f"   {held.remedy.command}" in page
    shown = lines(page_row(topic=name, held_by=held), 80, context=name, ascii_only=True)
    assert all(line.isascii() for line in shown)


@pytest.mark.parametrize("width", [60, 80])
def test_a_partitions_number_survives_the_cut_of_its_name(width: int) -> None:
    assert lines(page_row(topic="x" * 249), width)[0].endswith(":3")


@pytest.mark.parametrize(
    "headline",
    [
        "NOT HELD  the LSO is at the high watermark: not a transaction's doing",
        "HELD  moving on: the transaction that held it has ended",
    ],
)
def test_what_is_not_held(headline: str) -> None:
    row = page_row(headline=headline, held_by=None, owner=None, history=[], if_you_wait=None)
    page = lines(replace(row, waiting=None, held=0, stuck=False))
    assert labels(page[page.index(next(p for p in page if "readers see" in p)) - 1 :]) == [
        "readers see",
        "groups",
    ]
    assert max(map(cells, page)) <= 80
    words = " ".join(page).split()
    assert "saw 3/3 brokers" in " ".join(words)
    assert headline.split()[-1] in words


def test_what_could_not_be_seen() -> None:
    row = page_row(
        headline="NOT SEEN",
        error="LEADER_NOT_AVAILABLE",
        held_by=None,
        held=None,
        waiting=None,
        last_stable_offset=None,
        high_watermark=None,
    )
    page = lines(row)
    assert labels(page) == ["readers see", "error", "do"]
    assert "bring their brokers back" in " ".join(" ".join(page).split())
    assert page[1].endswith("LSO not known  HW not known")


def test_numbers_of_what_waits() -> None:
    waiting = WaitingRow(
        records=1, mine=1, aborted=0, other_open=0, freed=0, oldest_timestamp=None, at_least=True
    )
    text = "\n".join(lines(page_row(waiting=waiting), None))
    assert "at least 1 record waits" in text
    assert "at least 1 record here: an abort drops, a commit delivers them" in text
    assert "either frees at least 0 others" in text
    text = "\n".join(lines(page_row(waiting=None), None))
    assert "1,204 offsets held" in text


def test_what_is_not_known_is_said_so() -> None:
    text = "\n".join(lines(page_row(held_by=hanging("unknown", "none", producer_id=None)), None))
    assert " held by      not known\n" in text
    held = hanging(start_batch_epoch=None, start_offset=None)
    assert "pid 4001 epoch not known, first offset not known, no transactional id" in "\n".join(
        lines(page_row(held_by=held), None)
    )
    known = page_row().history[0]
    gone = replace(known, tombstone=True, state=None, producer_epoch=None, epoch_bump=None)
    strange = replace(gone, tombstone=False, timestamp=None)
    text = "\n".join(lines(page_row(history=[known, gone, strange]), None))
    assert " 21:58:20 CompleteCommit epoch 7 (end), 21:58:20 forgotten, ? not understood\n" in text


def test_what_else_the_transaction_holds() -> None:
    """Nine other partitions: six are named."""
    page = lines(page_row(also_holds=[f"orders:{n}" for n in range(4, 13)]), None)
    text = "orders:4, orders:5, orders:6, orders:7, orders:8, orders:9 and 3 more"
    assert f" also holds   {text}" in page
    assert "also holds" not in labels(lines(page_row()))


def marker_row(offset: int, origin: str = "foreign", **more: Any) -> MarkerRow:
    given: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": NOW,
        "outcome": "abort",
        "producer_id": 4001,
        "producer_epoch": 7,
        "coordinator_epoch": 0,
        "origin": origin,
    }
    return MarkerRow(**given | more)


def test_markers_that_no_coordinator_decided_are_named() -> None:
    row = page_row(markers=[marker_row(23), marker_row(31, "ours", outcome="commit")])
    text = " ".join(" ".join(lines(row)).split())
    assert (
        "marker ABORT at offset 23, 2023-11-14T22:13:20.000Z, pid 4001 epoch 7, coordinator epoch "
        "0: no decision of its coordinator fits it, so another tool or a person wrote it"
    ) in text
    assert "COMMIT at offset 31" in text
    assert "written by eoctl, see the journal" in text
    assert "hides" not in text
    assert all(cells(line) <= 80 for line in lines(row) if not line.startswith("   eoctl"))


def test_a_foreign_marker_hides_what_a_decision_of_version_1_is_about() -> None:
    held = replace(hanging("unknown", "none"), rule="order-unclear")
    hidden = "It hides whether the last decision is about the records that are held now."
    row = page_row(held_by=held, markers=[marker_row(23)])
    assert hidden in " ".join(" ".join(lines(row)).split())
    row = page_row(held_by=held, markers=[marker_row(23, "ours")])
    assert hidden not in " ".join(" ".join(lines(row)).split())


def test_only_the_newest_markers_are_listed() -> None:
    page = lines(page_row(markers=[marker_row(n) for n in (1, 2, 3, 4, 5)]), None)
    assert [n for n in range(6) if any(f"offset {n}," in line for line in page)] == [3, 4, 5]
    assert any("and 2 earlier ones that no coordinator decided" in line for line in page)


def test_the_log_tells_commit_from_abort_and_whose() -> None:
    def control(at: int, outcome: str | None, origin: str | None = None) -> StripRow:
        return StripRow(
            topic="orders",
            partition=3,
            first_offset=at,
            end_offset=at + 1,
            kind="control",
            outcome=outcome,  # type: ignore[arg-type]
            origin=origin,  # type: ignore[arg-type]
        )

    strip = [
        control(0, "commit", "decided"),
        control(1, "abort"),
        control(2, "abort", "ours"),
        control(3, "commit", "decision-gone"),
        control(4, "commit", "foreign"),
        control(5, None),
    ]
    row = page_row(strip=strip, last_stable_offset=6, high_watermark=6)
    assert any(line.endswith(" CAAC!|") for line in lines(row))
    assert any("! marker nobody decided" in line for line in lines(row))
