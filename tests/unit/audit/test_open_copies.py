"""What `audit mirror-transactions` lists as open in a mirror of byte copies. Answers are scripted;
real clusters are asked in tests/kafka/test_byte_copies.py."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import eoctl.operations.audit.mirror_transactions as of_logs
from eoctl.kafka.connection.cluster import Cluster
from eoctl.operations.audit import mirror_copies
from eoctl.operations.audit.mirror_copies import MirrorTransactionsRequest, open_copies
from eoctl.operations.audit.transactions import TransactionsAudit
from eoctl.operations.diagnose.copied import InSource
from eoctl.render.columns.audit import MIRROR_TRANSACTIONS
from eoctl.settings.context import Context
from recovery.answers import Answer
from recovery.audit.audit_rows import MirrorOpenRow
from recovery.diagnose.copied import Copied
from recovery.errors import IncompleteError, UnreachableError
from recovery.facts import Missing, TopicPartition
from recovery.inspect.history import Decision, Marker
from recovery.inspect.observation import OpenTransaction, Settings
from recovery.values import Reason, replace

ABOUT = OpenTransaction("copy", 0, 7, 40)
DECISION = Decision("app", "commit", 7, 4, (TopicPartition("t", 0),), 0, 12, 990, 2, 900, 1_010)
PROVEN = Copied("commit", None, 90, 2, 0, Marker(90, "commit", 4, 0, 1_000), DECISION)
DOUBTFUL = Copied(None, "order-unclear", 90, 2, 0, Marker(90, "commit", 4, 0, 1_000))


def one(
    name: str = "orphan",
    rule: str = "no-owner",
    samples: int = 2,
    owner: object = None,
    sequences: tuple[int, int] = (9, 9),
) -> Any:
    first, second = (
        SimpleNamespace(
            sees_all_coordinators=True,
            topic_describe=True,
            live=lambda pid: (),
            producer=lambda pid, at=at: SimpleNamespace(producer_epoch=3, last_sequence=at),
        )
        for at in sequences
    )
    verdict = SimpleNamespace(
        name=name,
        rule=rule,
        samples=samples,
        owner=owner,
        remedy=SimpleNamespace(does=Reason("one-sample"), action="none", refused=()),
    )
    return SimpleNamespace(about=ABOUT, verdict=verdict, first=first, newest=second)


OWNER = SimpleNamespace(transactional_id="link-1", state="Ongoing")


def listed(
    monkeypatch: pytest.MonkeyPatch,
    before: Any,
    after: Any,
    copied: Copied | Exception = PROVEN,
    skew: int = 5_000,
) -> tuple[list[MirrorOpenRow], list[Missing]]:
    """before, after: as the mirror is judged before the source was read and after; None = ended."""
    order: list[str] = []

    async def diagnose(*given: Any, **more: Any) -> Any:
        order.append("mirror")
        assert given[2] == settings_of(skew)
        return SimpleNamespace(judged=(before,), missing=())

    async def compared(*given: Any) -> InSource:
        order.append("source")
        assert given[2:] == (ABOUT, "t", skew)
        if isinstance(copied, Exception):
            raise copied
        return InSource("A", TopicPartition("t", 0), "a", "b", 0, copied)

    async def look_again(*given: Any) -> Any:
        assert order[-1] == "source", "the mirror must be asked last"
        assert given[2] == settings_of(skew)
        return [after]

    monkeypatch.setattr(mirror_copies, "diagnose", diagnose)
    monkeypatch.setattr(mirror_copies, "compared_with_source", compared)
    monkeypatch.setattr(mirror_copies, "look_again", look_again)
    monkeypatch.setattr(mirror_copies, "PAUSE_SECONDS", 0.0)
    request = MirrorTransactionsRequest((), context("b"), context("a"), skew)
    cluster = cast("Cluster", None)
    return asyncio.run(open_copies(cluster, cluster, {"t": "copy"}, request))


def settings_of(skew: int) -> Settings:
    """What the command line and the mirror's context say, also for the mirror's own verdicts."""
    return Settings(clock_skew=skew, two_phase_patterns=("sink-.*",))


def context(name: str) -> Context:
    made = SimpleNamespace(name=name, argv=["--context", name], two_phase_patterns=("sink-.*",))
    return cast("Context", made)


def test_what_nobody_in_the_mirror_owns_ends_as_the_source_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [row], missing = listed(monkeypatch, one(samples=1), one())
    assert (row.outcome, row.proven, missing) == ("commit", True, [])
    assert (row.transactional_id, row.same_batches, row.marker_offset) == ("app", 2, 90)
    assert row.command == (
        "eoctl txn resolve copy:0 --pid 7 --start-offset 40 --outcome commit --from-cluster a "
        "--from-topic t --context b"
    )
    [row], _ = listed(monkeypatch, one(samples=1), one(), skew=100)
    assert row.command is not None
    assert "--clock-skew 100ms" in row.command
    # only the operator knows it
    assert "--link-is-stopped" not in row.command


def test_a_list_of_them_says_why_and_what_must_be_done_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [proven], _ = listed(monkeypatch, one(samples=1), one())
    by_bundle = replace(proven, proven=False, same_batches=None, missing_records=None)
    [first, command, second, _, last] = below(proven, by_bundle)
    assert first == (
        "open in the mirror: copy:0 producer id 7: 2 batches from offset 40 on are the same in the "
        "source's log, which ends them at offset 90 with the commit that its coordinator decided "
        "for app"
    )
    assert command == f"  {proven.command}"
    assert "Only the source's log can prove" in second
    assert last.startswith("The link may simply be late: stop it")
    assert len(below(by_bundle)) == 2


def below(*rows: MirrorOpenRow) -> list[str]:
    answer = SimpleNamespace(extra={"open": [row.json_values() for row in rows]})
    return list(MIRROR_TRANSACTIONS.below(cast("Answer", answer)))


def test_a_link_that_was_only_behind_has_ended_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert listed(monkeypatch, one(samples=1), None) == ([], [])


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (one(samples=1), "it was looked at only once"),
        (one(sequences=(9, 12)), "its producer wrote between the looks"),
        (one("unknown", "coordinators-not-seen"), "another look may still show who owns it here"),
    ],
)
def test_what_the_remedy_would_refuse_has_no_command(
    monkeypatch: pytest.MonkeyPatch, after: Any, why: str
) -> None:
    rows, [missing] = listed(monkeypatch, one(samples=1), after)
    assert rows == []
    assert why in (missing.detail or "")


def test_what_has_an_owner_in_the_mirror_is_the_replicators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = one("open", "within-limits", owner=OWNER)
    assert listed(monkeypatch, one(samples=1), owned) == ([], [])


@pytest.mark.parametrize(
    "copied", [DOUBTFUL, IncompleteError("it was not read: TOPIC_AUTHORIZATION_FAILED")]
)
def test_what_the_source_does_not_prove_is_unknown(
    monkeypatch: pytest.MonkeyPatch, copied: Copied | Exception
) -> None:
    rows, [missing] = listed(monkeypatch, one(samples=1), one(), copied)
    assert (rows, missing.error) == ([], "UNPROVEN")


def test_what_is_cut_is_told_though_the_mirror_no_longer_says_what_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = UnreachableError("no broker answers", where="dc2")

    async def nothing(*given: Any) -> Any:
        return {}

    async def look(*given: Any) -> Any:
        return SimpleNamespace(ranges=(), missing=(), covered=(), later=())

    async def read(*given: Any) -> Any:
        return {}, []

    async def fail(*given: Any) -> Any:
        raise gone

    monkeypatch.setattr(of_logs._Cut, "_names", nothing)
    monkeypatch.setattr(TransactionsAudit, "look", look)
    monkeypatch.setattr(of_logs, "read_transactions", read)
    monkeypatch.setattr(of_logs, "open_copies", fail)
    cut = SimpleNamespace(cut=("one",), unproven=())
    monkeypatch.setattr(of_logs, "cut_by_mirror", lambda *given: cut)
    monkeypatch.setattr(of_logs, "cut_row", lambda one, names: one)
    cluster = cast("Cluster", SimpleNamespace(cluster_id="A"))
    asked = MirrorTransactionsRequest((), context("b"), context("a"), 5_000)
    audit = of_logs._Cut(cluster, cluster, asked, cast("Any", SimpleNamespace(most=10)))
    answer = asyncio.run(audit.answer())
    assert list(map(str, answer.rows)) == ["one"]
    assert (answer.extra["open"], answer.finding) == ([], True)
    [error] = answer.errors
    assert "what is open in the mirror: dc2: no broker answers" in str(error)
