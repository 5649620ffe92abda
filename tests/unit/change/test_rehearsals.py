"""A context that wants a rehearsal: of the same plan, of the kinds that can be rehearsed."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from eoctl.lab.twin.build import Twin
from eoctl.lab.twin.rows import REHEARSAL, RehearsalRow
from eoctl.operations import kinds  # noqa: F401 - fills KINDS
from eoctl.operations.change import acting, rehearsals
from eoctl.operations.change.acting import KINDS, Door, Outcome, StepOutcome, permit
from eoctl.operations.dashboard import rehearsing, twins
from eoctl.operations.dashboard.twins import Started
from eoctl.settings.context import Connect, Context, resolve
from eoctl.stores import bundle_files, plan_files
from eoctl.stores.journal_files import Journal
from recovery.change.plan import Plan, Step
from recovery.diagnose.diagnosis import Diagnosis, Judged
from recovery.errors import Exit, RefusedError, UsageError
from recovery.facts import BrokerFacts, CoordinatorClock, Missing
from recovery.values import replace

FAR = 2**42  # epoch ms, in the year 2109
OUTPUTS = [{"topic": "out", "partition": 0, "start": 1, "end_offset": 9}]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    config = tmp_path / "config.toml"
    config.write_text(
        "[contexts.dear]\nbootstrap_servers = 'here:1'\n"
        "protected = true\nrequire_rehearsal = true\n"
    )
    monkeypatch.setenv("EOCTL_CONFIG", str(config))
    return tmp_path / "state"


def plan(
    kind: str = "txn-abort", observed: int = 1, asked: Mapping[str, object] | None = None
) -> Plan:
    step = Step(action="write-marker", target="orders:3", does="it", stands_on=("orders:3",))
    return Plan(
        kind=kind,
        action="abort",
        created_at=0,
        expires_at=FAR,
        context="dear",
        argv=(),
        cluster_id="c",
        scope="orders:3",
        summary="",
        lock="",
        observed={"orders:3": observed},
        steps=(step,),
        details={"asked": asked, "decision": {"outputs": OUTPUTS}} if asked else None,
    )


MOVE = {"group": "g", "offsets": {"orders:3": 7}}
GROUP = {"kind": "kafka-group", "group": "g"}


def app(strategy: str, store: object = GROUP, mirror: object = None) -> dict[str, object]:
    return {"app": {"strategy": strategy, "store": store, "mirror": mirror}}


def dear() -> Context:
    context = resolve(Connect(context="dear"))
    assert (context.protected, context.require_rehearsal) == (True, True)
    return context


def permitted(wanted: Plan, context: Context) -> bool:
    door = Door(
        context, lambda question, word: None, execute=True, yes=True, plan_sha256=wanted.sha256
    )
    return permit(wanted, door)


def test_only_the_rehearsed_plan_is_permitted(state: Path) -> None:
    with pytest.raises(RefusedError, match="wants a rehearsal first") as refused:
        permitted(plan(), dear())
    remedy = refused.value.remedy or ""
    kept = state / "plans" / f"{plan().sha256}.json"
    assert f"eoctl lab rehearse {kept} incident.eoctl" in remedy
    assert f"eoctl txn apply {kept}" in remedy
    assert "cannot show it, take `require_rehearsal` out of the context" in remedy
    assert plan_files.read(kept).sha256 == plan().sha256
    rehearsals.keep(plan().sha256)
    assert permitted(plan(), dear())
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(observed=2), dear())
    (state / "rehearsals" / plan().sha256).write_text("{")
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(), dear())


def test_a_rehearsal_of_another_name_does_not_count(state: Path) -> None:
    other = plan(observed=2)
    rehearsals.keep(other.sha256)
    there = state / "rehearsals"
    (there / other.sha256).rename(there / plan().sha256)
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(), dear())


def test_it_is_asked_for_before_the_question() -> None:
    def confirm(question: str, word: str) -> bool | None:
        raise AssertionError(question)

    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permit(plan(), Door(dear(), confirm, execute=True))


def test_without_protection_or_for_other_kinds_nothing_is_asked() -> None:
    with pytest.raises(RefusedError, match="wants a rehearsal"):
        permitted(plan(), replace(dear(), protected=False))
    assert permitted(plan(), replace(dear(), require_rehearsal=False))
    assert permitted(plan("dedup"), dear())
    assert permitted(plan("restart", asked=app("sql", {"kind": "sql"})), dear())
    assert {*rehearsals.REMEDIES, rehearsals.RESTART} <= KINDS.keys()


@pytest.mark.parametrize(
    ("asked", "why_not"),
    [
        (MOVE, None),
        (app("commit-pair"), None),
        (MOVE | {"origin": {}}, "from another cluster"),
        (app("transactional"), "strategy transactional stands on more"),
        (app("output-end"), "strategy output-end stands on more"),
        (app("commit-pair", {"kind": "file"}), "not a group"),
        (app("commit-pair", mirror={"kind": "zookeeper"}), "not a group"),
        (app("changelog", None), "not a group"),
    ],
)
def test_a_restart_is_rehearsed_if_it_moves_a_group_alone(
    asked: Mapping[str, object], why_not: str | None
) -> None:
    found = rehearsals.why_not(plan("restart", asked=asked))
    assert (found is None) == (why_not is None)
    assert (why_not or "") in (found or "")


def test_what_a_bundle_has_no_room_for_is_known_beforehand() -> None:
    many = rehearsals.MOST_COUNTED + 1
    outputs = [{"topic": "out", "partition": 0, "start": 1, "end_offset": 1 + many}]
    details = {"asked": app("commit-pair"), "decision": {"outputs": outputs}}
    large = plan("restart").model_copy(update={"details": details})
    assert "it counts 4000001 offsets" in (rehearsals.why_not(large) or "")
    assert permitted(large, dear())


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"asked": MOVE},
        {"asked": None, "decision": {}},
        {"asked": {"group": "g"}, "decision": {}},
        {"asked": {"app": {"strategy": "commit-pair"}}, "decision": {}},
        {"asked": {"app": 7}, "decision": {}},
        {"asked": app("commit-pair"), "decision": None},
        {"asked": app("commit-pair"), "decision": {"outputs": [{"start": "x", "end_offset": 1}]}},
    ],
)
def test_what_restart_plan_did_not_write_is_said_in_one_sentence(
    details: dict[str, object], tmp_path: Path
) -> None:
    forged = plan("restart").model_copy(update={"details": details})
    with pytest.raises(UsageError, match="not a plan of `restart plan`"):
        rehearsing.read(written(forged, tmp_path), KEPT)


def test_a_bundle_that_lacks_what_its_plan_stands_on_is_refused_before_a_start() -> None:
    bundle, _ = bundle_files.read(KEPT)
    mine = plan("restart", asked=MOVE).model_copy(update={"cluster_id": bundle.cluster_id})
    gap = Missing("partition", "TOO_LARGE", "up to offset 8", None, "orders", 3)
    short = replace(bundle, plan_sha256=mine.sha256, planned_missing=(gap,))
    with pytest.raises(RefusedError, match="stands on: up to offset 8"):
        rehearsing.rehearse(mine, started(short))
    remedy = plan().model_copy(update={"cluster_id": bundle.cluster_id})
    rehearsing._check_bundle(remedy, short)  # it needs none of them
    assert gap in short.missing


def test_a_restart_wants_a_bundle_of_its_own(state: Path, tmp_path: Path) -> None:
    move = plan("restart", asked=MOVE)
    with pytest.raises(RefusedError, match="wants a rehearsal first") as refused:
        permitted(move, dear())
    kept = state / "plans" / f"{move.sha256}.json"
    for command in (
        f"eoctl bundle create incident.eoctl --for {kept}",
        f"eoctl restart apply {kept}",
    ):
        assert command in (refused.value.remedy or "")
    bundle, _ = bundle_files.read(KEPT)
    mine = move.model_copy(update={"cluster_id": bundle.cluster_id})
    with pytest.raises(RefusedError, match="not made for this plan"):
        rehearsing.read(written(mine, tmp_path), KEPT)
    bundle_files.write(replace(bundle, plan_sha256=mine.sha256), tmp_path / "mine.eoctl")
    assert rehearsing.read(tmp_path / "plan.json", tmp_path / "mine.eoctl") == mine


KEPT = Path("tests/kept/0.2.0/incident.eoctl")


def written(made: Plan, folder: Path) -> Path:
    path = folder / "plan.json"
    plan_files.write(made, path)
    return path


def test_what_cannot_be_rehearsed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of kind dedup cannot be rehearsed"):
        rehearsing.read(written(plan("dedup"), tmp_path), KEPT)
    with pytest.raises(RefusedError, match="the plan is for cluster c, the bundle is of"):
        rehearsing.read(written(plan(), tmp_path), KEPT)
    bundle, _ = bundle_files.read(KEPT)
    assert bundle.cluster_id is not None
    mine = plan().model_copy(update={"cluster_id": bundle.cluster_id})
    assert rehearsing.read(written(mine, tmp_path), KEPT) == mine


def test_only_the_cluster_its_brokers_and_its_times_differ_on_the_twin() -> None:
    bundle, _ = bundle_files.read(KEPT)
    brokers = tuple(BrokerFacts(number, "h", 1) for number in (7, 101, 205))
    clocks = (CoordinatorClock(101, 3000),)
    [row, *rest] = bundle.transactions.rows
    ours = replace(row, coordinator=101)
    transactions = replace(bundle.transactions, rows=(ours, *rest), clocks=clocks)
    twin = SimpleNamespace(
        bundle=replace(bundle, brokers=brokers, transactions=transactions),
        shift=50_000,
        context=SimpleNamespace(title="lab-rehearsal", argv=("--context", "lab-rehearsal")),
        lab=SimpleNamespace(record=SimpleNamespace(cluster_id="the twin's")),
    )
    facts = {"leader": 205, "leader_epoch": 9, "start_timestamp": 1_000, "partitions": ["a:7"]}
    mine = {"start_timestamp": 10_000, "producer_id": row.producer_id}
    parameters = mine | {"coordinator": 101, "timeout_ms": 7}
    first = plan()
    [step] = first.steps
    first = first.model_copy(
        update={
            "observed": {"orders:3": facts, "id": mine},
            "steps": (step.model_copy(update={"parameters": parameters}),),
        }
    )
    there = rehearsing.on_twin(first, twin)  # type: ignore[arg-type]
    assert there.cluster_id == "the twin's"
    began = {"start_timestamp": 10_000 + 50_000 - 3000}  # its coordinator's clock was 3 s ahead
    assert there.observed == {
        "orders:3": facts | {"leader": 3, "start_timestamp": 51_000},
        "id": mine | began,
    }
    assert there.steps[0].parameters == parameters | began | {"coordinator": 2}
    assert (there.kind, there.scope) == (first.kind, first.scope)
    assert there.sha256 != first.sha256


def started(bundle: bundle_files.Bundle) -> Started:
    """Return a twin without brokers."""
    lab = SimpleNamespace(
        name="twin",
        context_name="lab-twin",
        record=SimpleNamespace(cluster_id="the twin's"),
        client_properties=lambda: {"bootstrap.servers": "127.0.0.1:1"},
        bootstrap_servers="127.0.0.1:1",
    )
    return Started(bundle, Twin(lab, 0))  # type: ignore[arg-type]


def test_a_twin_is_asked_at_its_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context of the user's may have the lab's name; production must not be judged as a twin."""
    config = tmp_path / "mine.toml"
    config.write_text("[contexts.lab-twin]\nbootstrap_servers = 'production:9092'\n")
    monkeypatch.setenv("EOCTL_CONFIG", str(config))
    monkeypatch.setenv("EOCTL_COMMAND_CONFIG", "/no/such/file")
    bundle, _ = bundle_files.read(KEPT)
    twin = started(bundle)
    assert twin.context.properties == {"bootstrap.servers": "127.0.0.1:1"}
    assert twin.context.argv == ("--bootstrap-server", "127.0.0.1:1")
    judged = bundle_files.judged_again(bundle)
    monkeypatch.setattr(twins, "with_cluster", lambda *_: replace(judged, missing=()))
    with pytest.raises(RefusedError, match="is not the twin"):
        twin.judged()


def rehearsed(
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    before: Diagnosis,
    bundle: bundle_files.Bundle,
    after: Diagnosis | None = None,
) -> tuple[rehearsing.Rehearsed, Plan]:
    """Rehearse a plan on a twin that answers `before`, with this outcome."""
    wanted = plan().model_copy(update={"cluster_id": bundle.cluster_id})
    twin = started(bundle)
    looks = iter([before, before if after is None else after])
    monkeypatch.setattr(twin, "judged", lambda: next(looks))

    def execute(there: Plan, door: Door, seconds: float) -> Outcome:
        Journal().begin(there, ["eoctl"]).close()  # as a run leaves it that is killed
        assert len(Journal().find().entries) == 1
        [step] = there.steps
        return Outcome(None, (StepOutcome(1, step, status, ""),))  # type: ignore[arg-type]

    monkeypatch.setattr(acting, "execute", execute)
    return rehearsing.rehearse(wanted, twin), wanted


@pytest.mark.parametrize("status", ["done", "already-done", "refused", "unverified", "beyond-plan"])
def test_only_what_was_done_on_an_equal_twin_is_a_rehearsal(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    bundle, _ = bundle_files.read(KEPT)
    equal = bundle_files.judged_again(bundle)
    became, wanted = rehearsed(monkeypatch, status, equal, bundle)
    assert rehearsals.find(wanted.sha256) == (status == "done")
    assert (became.exit_status is Exit.OK) == (status == "done")
    kept = "kept" in str(became.answer.extra["outcome"])
    assert kept
    assert ("not kept" in str(became.answer.extra["outcome"])) == (status != "done")
    assert Journal().find().entries == []  # the operator's own says nothing of a twin


def test_a_twin_that_differs_is_no_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, _ = bundle_files.read(KEPT)
    equal = bundle_files.judged_again(bundle)
    differing = replace(equal, judged=())
    became, wanted = rehearsed(monkeypatch, "done", differing, bundle)
    assert not rehearsals.find(wanted.sha256)
    assert became.exit_status is Exit.FINDING
    assert "differ" in str(became.answer.extra["outcome"])


def test_a_twin_that_is_not_seen_completely_is_no_rehearsal_and_nothing_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle, _ = bundle_files.read(KEPT)
    gap = Missing("broker", "TIMED_OUT", "it did not answer", broker=1)
    unseen = replace(bundle_files.judged_again(bundle), missing=(gap,), partitions=())
    became, wanted = rehearsed(monkeypatch, "done", unseen, bundle)
    assert not rehearsals.find(wanted.sha256)
    assert "not all of the twin could be seen" in str(became.answer.extra["outcome"])
    rows = [
        r for r in became.answer.rows if isinstance(r, RehearsalRow) and r.partition is not None
    ]
    row = rows[0]
    assert (row.held_before, row.held_after) == (None, None)
    ended = replace(row, verdict_after=None)
    assert REHEARSAL.cells(ended)["verdict_after"] is None
    assert REHEARSAL.cells(replace(ended, held_after=0))["verdict_after"] == "ended"


def test_what_is_held_no_more_is_seen_to_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis lists held partitions only."""
    bundle, _ = bundle_files.read(KEPT)
    equal = replace(bundle_files.judged_again(bundle), missing=())
    free = replace(equal, judged=(), partitions=())
    became, _ = rehearsed(monkeypatch, "done", equal, bundle, free)
    [row, *_] = [r for r in became.answer.rows if isinstance(r, RehearsalRow) and r.topic]
    assert row.held_before
    assert (row.held_after, REHEARSAL.cells(row)["verdict_after"]) == (0, "ended")


def test_a_bundle_that_was_replaced_meanwhile_is_refused() -> None:
    bundle, _ = bundle_files.read(KEPT)
    with pytest.raises(RefusedError, match="the bundle is of"):
        rehearsing.rehearse(plan(), started(bundle))


def test_only_a_decision_that_ended_or_is_sent_again_may_differ() -> None:
    """An id in Prepare* excuses no other verdict."""
    bundle, _ = bundle_files.read(KEPT)
    d = bundle_files.judged_again(bundle)
    [there, *_] = d.judged
    subject = twins.subject_of(there)
    prepared = frozenset({twins.id_of(there) or ""})

    def because(here: Judged | None) -> str | None:
        return twins.row(subject, there, here, prepared).because

    as_verdict = {
        name: replace(there, verdict=replace(there.verdict, name=name, rule="another"))
        for name in ("orphan", "unknown", "prepare")
    }
    assert because(None)
    assert because(as_verdict["prepare"])
    assert not because(as_verdict["orphan"])
    assert not because(as_verdict["unknown"])
    assert not twins.row(subject, there, None, frozenset()).because
