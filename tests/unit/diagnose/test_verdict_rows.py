"""Commands that rows of verdicts name, exit statuses of answers, and the rows of `status`."""

import shlex
from itertools import permutations
from typing import Any

import pytest

from eoctl.cli.commands import remedy
from eoctl.cli.dialog import acting
from eoctl.cli.main import run
from eoctl.operations.diagnose.verdict_rows import (
    hanging_answer,
    remedy_argv,
    remedy_row,
    status_rows,
)
from recovery.answers import Answer, worst
from recovery.diagnose.diagnosis import ORDER, Diagnosis, Judged, mark
from recovery.diagnose.diagnosis_rows import Action
from recovery.diagnose.remedies import Remedy
from recovery.diagnose.verdicts import FINDINGS, Verdict, VerdictName
from recovery.errors import Exit
from recovery.facts import PartitionFacts, ProducerFacts, Transactions
from recovery.inspect.observation import OpenTransaction, Sample
from recovery.row import ErrorRow
from recovery.values import Reason, replace

CONNECTION = ["--context", "prod eu", "-X", "client.id=a'b"]
CLUSTER = "-L6gXyZ_5K"


def verdict(
    action: Action = "abort",
    *,
    topic: str = "orders",
    name: VerdictName = "orphan",
    pid: int | None = 4001,
    age: float | None = 14.0,
    **more: Any,
) -> Verdict:
    return Verdict(
        OpenTransaction(topic, 3, pid, 182736450),
        name,
        "a-rule",
        (),
        Remedy(action, Reason("abort"), **more),
        age_seconds=age,
        age_clock="producer",
    )


HOSTILE = [
    "-rf",
    "--execute",
    "--",
    "it's",
    'a "b"',
    "a\nb",
    "$(reboot)",
    "`x`;y",
    " ",
    "\x1b[31m",
    "\u202egnp",
    "ö😀",
    "*",
    "~",
    "=x",
]


def fence(name: str) -> Verdict:
    return verdict(
        "fence", name="overdue", transactional_id=name, producer_id=4007, producer_epoch=12
    )


def resolve_(topic: str = "orders") -> Verdict:
    return verdict("resolve", name="marker-lost", topic=topic, outcome="commit")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the commands understood: (connection, said, cluster id, request)."""
    seen: list[tuple[Any, ...]] = []

    def keep(
        connection: object,
        output: object,
        said: object,
        limits: object,
        cluster_id: object,
        *rest: Any,
    ) -> int:
        seen.append((connection, said, cluster_id, rest[0]))
        return 0

    monkeypatch.setattr(remedy, "_run", keep)
    return seen


@pytest.mark.parametrize(
    "v",
    [
        *map(fence, [*HOSTILE, "orders-1"]),
        *(
            make(topic=t)
            for t in ("orders", "-orders", "--execute", "-")
            for make in (verdict, resolve_)
        ),
    ],
)
def test_a_pasted_remedy_means_what_was_judged_and_shows_a_plan(
    v: Verdict, parsed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = remedy_argv(v, CONNECTION, CLUSTER)
    assert argv is not None
    assert argv[:5] == ["eoctl", *CONNECTION]
    line = remedy_row(v, argv).command
    assert line is not None
    assert "\n" not in line
    assert line.isprintable()
    if "$'" not in line:
        assert shlex.split(line) == argv
    # again as its plan's last line says it
    for executes, words in ((False, argv[1:]), (True, acting.executing(argv[1:]))):
        assert run(words) == 0
        connection, said, cluster_id, request = parsed.pop()
        assert (connection.context, connection.x) == ("prod eu", ["client.id=a'b"])
        assert (said.execute, said.yes) == (executes, False)
        assert cluster_id == CLUSTER
        assert request.action == v.remedy.action
        if request.action == "fence":
            assert request.transactional_id == v.remedy.transactional_id
            assert (request.producer_id, request.producer_epoch) == (4007, 12)
            assert request.owner_is_gone is False
        else:
            assert request.partition == v.about.name
            assert (request.producer_id, request.start_offset) == (4001, 182736450)
            assert request.outcome == v.remedy.outcome


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_no_shell_can_say_is_no_command_but_an_argv(name: str) -> None:
    row = remedy_row(fence(name), remedy_argv(fence(name), CONNECTION, CLUSTER))
    assert row.command is None
    assert row.argv is not None
    assert name in row.argv


@pytest.mark.parametrize("action", ["wait", "restore-leader", "restart-coordinator", "none"])
def test_where_eoctl_has_no_command(action: Action) -> None:
    v = verdict(action)
    assert remedy_argv(v, CONNECTION, CLUSTER) is None
    assert remedy_row(v, None).command is None


def answer(**more: Any) -> Answer:
    return Answer("x", "c", 0, [], **more)


ERROR = ErrorRow(
    scope="broker", broker=1, topic=None, partition=None, id=None, error="E", detail="d"
)


@pytest.mark.parametrize(
    ("judging", "finding", "errors", "first", "status"),
    [
        (False, False, False, False, 0),
        (False, True, False, False, 0),  # a list
        (False, True, True, True, 3),
        (True, False, False, False, 0),
        (True, True, False, False, 1),
        (True, True, True, False, 3),
        (True, False, True, False, 3),
        (True, True, True, True, 1),  # check
        (True, False, True, True, 3),
    ],
)
def test_exit_status_of_an_answer(
    judging: bool, finding: bool, errors: bool, first: bool, status: int
) -> None:
    got = answer(judging=judging, finding=finding, errors=[ERROR] * errors, finding_first=first)
    assert got.exit_status == status
    assert got.complete is not errors


def test_the_worst_of_several() -> None:
    order = [6, 5, 3, 4, 1, 0]
    for n in range(1, 4):
        for chosen in permutations(order, n):
            assert worst(map(Exit, chosen)) == min(chosen, key=order.index)
    assert worst([]) == 0
    assert worst([Exit.UNVERIFIED, Exit.INTERNAL, Exit.OK]) == 70


def judged(v: Verdict, held: int = 10) -> Judged:
    partition = PartitionFacts(v.about.topic, v.about.partition, "id", 1, 2, (), 0, 100, 100 + held)
    pid = v.about.producer_id
    producers = None
    if pid is not None:
        producers = (ProducerFacts(v.about.topic, 3, pid, 9, 5, 1_700_000_000_000, None, 100),)
    sample = Sample(partition, producers, Transactions(), 0, True)
    return Judged(v.about, None, sample, None, None, v)


def diagnosis(*seen: Judged) -> Diagnosis:
    return Diagnosis(
        CLUSTER, 0, 9, 2, 1, 1, tuple(j.partition for j in seen), seen, Transactions(), ()
    )


def on(topic: str, v: Verdict) -> Verdict:
    return replace(v, about=replace(v.about, topic=topic))


def test_what_is_hidden_is_no_finding_and_what_is_filtered_still_counts() -> None:
    open_, prepare = verdict("wait", name="open"), verdict("wait", name="prepare")
    d = diagnosis(judged(on("a", open_)), judged(on("b", prepare)))
    assert hanging_answer(d, [], show_all=False).rows == []
    assert hanging_answer(d, [], show_all=False).exit_status == 0
    assert len(hanging_answer(d, [], show_all=True).rows) == 2
    assert len(hanging_answer(d, [], show_all=False, verdicts=["open"]).rows) == 1

    d = diagnosis(judged(verdict()), judged(on("a", open_)))
    got = hanging_answer(d, [], show_all=False, verdicts=["open"])
    assert ([r.verdict for r in got.rows], got.exit_status) == (["open"], 1)  # type: ignore[attr-defined]

    unknown = judged(on("u", verdict("none", name="unknown", pid=None)))
    got = hanging_answer(diagnosis(judged(verdict()), unknown), [], show_all=False)
    assert got.exit_status == 3
    assert [(e.topic, e.partition, e.error) for e in got.errors] == [("u", 3, "UNKNOWN_VERDICT")]


def test_the_worst_first_then_the_oldest() -> None:
    seen = [
        judged(on("a", verdict("none", name="unknown", age=None))),
        judged(on("b", verdict(age=1.0))),
        judged(on("c", verdict(age=None))),
        judged(on("d", verdict(age=99.0))),
        judged(on("e", verdict("resolve", name="marker-lost", outcome="commit"))),
    ]
    rows = hanging_answer(diagnosis(*seen), [], show_all=False).rows
    assert [r.topic for r in rows] == ["d", "b", "c", "e", "a"]  # type: ignore[attr-defined]


def test_every_verdict_has_its_place_and_its_mark() -> None:
    findings = {"orphan", "marker-lost", "prepare-stuck", "two-phase", "overdue", "long"}
    findings |= {"coordinator-fenced"}
    assert set(FINDINGS) == findings
    assert set(ORDER) == findings | {"unknown", "open", "prepare"}
    assert {v: mark(v) for v in ORDER} == {
        "orphan": "!!",
        "marker-lost": "!!",
        "coordinator-fenced": "!!",
        "prepare-stuck": "!!",
        "overdue": "!!",
        "long": "!",
        "two-phase": "!",
        "unknown": "?",
        "prepare": None,
        "open": None,
    }


def test_status_counts_transactions_and_partitions() -> None:
    seen = [
        judged(on("a", verdict(age=5.0)), held=3),
        judged(on("b", verdict(age=50.0)), held=30),
        judged(on("-c", verdict(age=None, pid=4002)), held=300),
        judged(verdict("wait", name="open")),
    ]
    [row] = status_rows(diagnosis(*seen), {"orphan": 2})
    assert (row.verdict, row.transactions, row.partitions, row.groups) == ("orphan", 2, 3, 2)
    assert (row.oldest_seconds, row.worst) == (50.0, "-c:3")
    assert row.next == "why -- -c:3"
    [row] = status_rows(diagnosis(seen[1]))
    assert (row.next, row.groups) == ("why b:3", None)
