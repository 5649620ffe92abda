"""Each drill is solved by its runbook as written; the tempting wrong way of each is marked down.

The commands are copied from the page, with the names that earlier commands printed in place of the
page's. That a wrong way did harm is held against Kafka's own log dump and consumer.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.drills.catalogue import CYCLE, DRILLS
from eoctl.lab.drills.drill_state import FILE, Case
from eoctl.lab.drills.running import state_of
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, Ran, eoctl
from tests.kafka.remedying import dumped_markers, read_committed
from tests.kafka.tools import kafka_tool
from tests.kafka.trainee import ACT, SECONDS, Trainee
from tests.share import only_here


@pytest.fixture(scope="module")
def lab(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """Two brokers whose coordinators end nothing by themselves while a drill lasts."""
    return start_lab(LabSpec(name="drills", brokers=2, settings=CYCLE))


@pytest.fixture
def drill(lab: Lab, tmp_path: Path) -> Iterator[Trainee]:
    trainee = Trainee(lab, tmp_path)
    yield trainee
    trainee.end()


# -- readers stuck: one reading of the page solves every drill of it ------------------------------


def decide(trainee: Trainee, partition: str) -> bool:
    """Follow the page's tree for one partition; whether anything was done."""

    def run(begins: str, names: dict[str, str], *more: str) -> Ran:
        return trainee.copied(begins, names, *more, *FAST, page_name="readers-stuck")

    told = run("eoctl why orders:3", {"orders:3": partition}, "-o", "json")
    by = told.rows[0]["held_by"]
    if by is None:
        return False
    name = by["transactional_id"]
    names = {
        "orders:3": partition,
        "4001": str(by["producer_id"]),
        "42": str(by["start_offset"]),
        "order-sender-0": str(name),
    }
    if by["verdict"] == "unknown":  # that page first: it has brought back what it could
        return True
    if by["verdict"] == "orphan" and by["remedy"]["action"] == "abort":
        done = run("eoctl txn abort", names, *ACT)
        assert done.status == 0, done.stderr
        return True
    if by["verdict"] == "marker-lost":
        outcome = {"commit": by["proven_outcome"]}
        done = run("eoctl txn resolve", names | outcome, *ACT)
        assert done.status == 0, done.stderr
        return True
    answer = trainee.ask(name)
    if answer == "alive":  # let it end
        return bool(by["verdict"] in ("orphan", "overdue"))
    assert answer == "dead"
    done = run("eoctl txn fence order-sender-0", names, *ACT)
    if done.status == 4:  # refused, and its owner has said that it is gone
        done = run("eoctl txn fence order-sender-0 --owner-is-gone", names, *ACT)
    assert done.status == 0, done.stderr
    return True


def follow(trainee: Trainee) -> None:
    """From the page's first command on, until nothing is left to do."""
    first = trainee.copied("eoctl status", {}, *FAST, page_name="readers-stuck")
    if first.status == 3:  # "coordinator unavailable" first
        assert trainee.copied("eoctl txn list", {}, page_name="coordinator-unavailable").status == 3
        trainee.up()
    end = time.monotonic() + SECONDS
    while sum(
        decide(trainee, partition) for partition in trainee.held()
    ):  # not `any`: each of them
        assert time.monotonic() < end


STUCK = [name for name, one in DRILLS.items() if one.page == "readers-stuck" and name != "mix"]


@pytest.mark.parametrize("name", only_here(STUCK, "orphan"))
def test_the_page_on_stuck_readers_solves(name: str, drill: Trainee) -> None:
    row = drill.begin(name)
    assert "stand still" in row["story"]
    assert_hidden(drill.lab, state_of(drill.lab).cases)
    follow(drill)
    drill.full_marks()


@pytest.mark.long
def test_a_storm_is_left_to_its_owners_and_the_orphan_beside_it_ended(drill: Trainee) -> None:
    """Its page ends with a question to the owners; the page on stuck readers solves the rest."""
    drill.begin("fence-storm")
    [storm] = [c for c in state_of(drill.lab).cases if c.role == "alive"]
    assert drill.ask(str(storm.transactional_id)) == "alive"
    follow(drill)
    drill.full_marks()
    assert last_marker(drill.lab, storm) == "commit"


@pytest.mark.long
def test_a_fence_of_a_storm_harms_its_right_owner(drill: Trainee) -> None:
    """What its team asks for: just fence it once more."""
    drill.begin("fence-storm")
    [storm] = [c for c in state_of(drill.lab).cases if c.role == "alive"]
    words = ("txn", "fence", str(storm.transactional_id), "--owner-is-gone")
    done = eoctl(*words, *ACT, *FAST, lab=drill.lab)
    assert done.status == 0, done.stderr
    assert drill.results()[storm.subject] == "harmful"


def fence_all(trainee: Trainee) -> None:
    """What somebody in the chat says: end all that is open."""
    for row in eoctl("txn", "list", "--state", "Ongoing", "-o", "json", lab=trainee.lab).rows:
        words = ("txn", "fence", row["transactional_id"], "--owner-is-gone")
        eoctl(*words, *ACT, *FAST, lab=trainee.lab)


def kafkas_abort(trainee: Trainee, topic_partition: str) -> None:
    """Kafka's own tool: it looks at nothing but the leader of the partition."""
    [row] = eoctl("lso", topic_partition, "-o", "json", lab=trainee.lab).rows
    topic, _, partition = topic_partition.partition(":")
    done = kafka_tool(
        trainee.lab,
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", trainee.lab.bootstrap_servers, "abort", "--topic", topic),
        *("--partition", partition, "--start-offset", str(row["last_stable_offset"])),
    )
    assert done.returncode == 0, done.stderr


def last_marker(lab: Lab, case: Case) -> str:
    """The newest marker of a case's producer, by Kafka's own log dump."""
    assert case.topic is not None
    assert case.partition is not None
    assert case.producer_id is not None
    partition = f"{case.topic}-{case.partition}"
    broker = next(b for b in lab.broker_ids if (lab.data_folder(b) / partition).exists())
    return dumped_markers(lab, case.topic, case.partition, case.producer_id, broker)[-1][0]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["orphan", "dead-owner", "overdue", "not-flink", "zombie", "connect"]
)
def test_fencing_whoever_is_open_harms_those_who_live(name: str, drill: Trainee) -> None:
    drill.begin(name)
    [alive] = [c for c in state_of(drill.lab).cases if c.role == "alive"]
    fence_all(drill)
    results = drill.results()
    assert results[alive.subject] == "harmful"
    assert last_marker(drill.lab, alive) == "abort"
    dead = {c.subject for c in state_of(drill.lab).cases if c.role == "dead"}
    assert {results[subject] for subject in dead} <= {"wrong"}  # it came out right by luck
    _, found = drill.grade()
    assert found["points"] <= -20
    [row] = [r for r in found["rows"] if r["result"] == "harmful"]
    assert row["records_lost"] >= 3


@pytest.mark.long
def test_what_its_id_committed_before_says_nothing_of_an_orphan(drill: Trainee) -> None:
    """Taken for done, since a COMMIT marker stands there; or its idle id is fenced for nothing."""
    drill.begin("behind-marker")
    [case] = state_of(drill.lab).cases
    words = ("txn", "fence", str(case.transactional_id), "--owner-is-gone")
    done = eoctl(*words, *ACT, *FAST, lab=drill.lab)  # it raises the id, and frees nobody
    assert done.status == 0, done.stderr
    assert drill.results() == {case.subject: "left"}


@pytest.mark.long
def test_an_id_that_is_fenced_for_its_orphan_loses_its_live_transaction(drill: Trainee) -> None:
    drill.begin("elsewhere")
    orphan, home = state_of(drill.lab).cases
    words = ("txn", "fence", str(home.transactional_id), "--owner-is-gone")
    done = eoctl(*words, *ACT, *FAST, lab=drill.lab)
    assert done.status == 0, done.stderr
    assert decide(drill, orphan.subject)
    assert drill.results() == {orphan.subject: "right", home.subject: "harmful"}


@pytest.mark.long
def test_kafkas_abort_of_both_lost_markers_drops_what_was_committed(drill: Trainee) -> None:
    drill.begin("lost-markers")
    cases = state_of(drill.lab).cases
    for case in cases:
        kafkas_abort(drill, case.subject)
    assert {last_marker(drill.lab, case) for case in cases} == {"abort"}
    wanted = {c.subject: "harmful" if c.role == "lost-commit" else "right" for c in cases}
    assert drill.results() == wanted


@pytest.mark.long
def test_a_broker_that_left_is_brought_back_before_anything_is_decided(drill: Trainee) -> None:
    drill.begin("broker-leaves")
    drill.gone()
    first = drill.copied("eoctl txn list", {})
    assert first.status == 3
    assert "coordinator partitions answered" in first.stderr
    partitions = drill.held()
    assert len(partitions) == 2
    for partition in partitions:
        [row] = eoctl("why", partition, *FAST, "-o", "json", lab=drill.lab).rows
        assert row["held_by"]["verdict"] == "unknown"
    drill.up()
    last = drill.copied("eoctl txn list", {})
    assert last.status == 0, last.stderr
    follow(drill)
    drill.full_marks()


@pytest.mark.long
def test_an_abort_while_a_coordinator_is_away_kills_who_it_coordinates(drill: Trainee) -> None:
    drill.begin("broker-leaves")
    drill.gone()
    alive, orphan, broker = state_of(drill.lab).cases
    for case in (alive, orphan):
        kafkas_abort(drill, case.subject)
    assert drill.results() == {
        alive.subject: "harmful",
        orphan.subject: "right",
        broker.subject: "left",
    }


# -- the other pages ------------------------------------------------------------------------------


@pytest.mark.long
def test_fencing_what_a_checkpoint_promises_loses_it(drill: Trainee) -> None:
    drill.begin("flink-checkpoint")
    fence_all(drill)
    status, found = drill.grade()
    assert (status, [r["result"] for r in found["rows"]]) == (1, ["harmful", "right"])


@pytest.mark.long
def test_a_job_that_starts_again_as_it_is_doubles(drill: Trainee) -> None:
    drill.begin("crashed-job")
    numbers = eoctl("restart", "plan", str(drill.app_file()), "--env", lab=drill.lab, timeout=180)
    env = drill.folder / "env"
    planned = dict(line.split("=") for line in numbers.stdout.splitlines())
    for name in [name for name in planned if name.endswith("_FROM")]:
        stem = name.removesuffix("_FROM")
        planned |= {stem: "0", name: planned[f"{stem}_END"]}  # by hand: nothing is to be dropped
    env.write_text("".join(f"{name}={value}\n" for name, value in planned.items()))
    drill.finish(env)
    assert drill.results() == {"sales-priced": "wrong"}


@pytest.mark.long
def test_a_state_of_an_earlier_instant_is_not_the_one_that_was_lost(drill: Trainee) -> None:
    drill.begin("lost-store")
    before = str(drill.folder / "before")
    words = ("--format", "plain", "--at", "2025-11-21T05:00:00Z", "--output", before)
    eoctl("state", "rebuild", "sales-totals-changelog", *words, lab=drill.lab, timeout=180)
    into = ("--into", "topic:sales-totals", *ACT)
    done = eoctl("state", "deliver", before, *into, lab=drill.lab, timeout=180)
    assert done.status == 0, done.stderr
    assert drill.results() == {"sales-totals": "harmful"}


@pytest.mark.long
def test_a_copy_by_value_loses_orders_that_cost_the_same(drill: Trainee) -> None:
    drill.begin("duplicates")
    words = ("dedup", "orders-enriched", "orders-clean", "--by", "value", *ACT)
    done = eoctl(*words, lab=drill.lab, timeout=180)
    assert done.status == 0, done.stderr
    assert drill.results() == {"orders-clean": "harmful"}
    _, found = drill.grade()
    unlike = len(set(read_committed(drill.lab, "orders-enriched", 0)))
    assert found["rows"][0]["records_lost"] == 400 - unlike


# -- all at once, and what a drill is -------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_mix_is_solved_by_the_pages(seed: int, drill: Trainee) -> None:
    drill.begin("mix", seed)
    drill.gone()
    status, unread = drill.grade()
    assert (status, unread["complete"]) == (3, False)  # what the broker leads cannot be read
    follow(drill)
    drill.full_marks()


@pytest.mark.long
def test_the_mix_ended_by_force(drill: Trainee) -> None:
    drill.begin("mix", 3)
    drill.gone()
    drill.up()
    fence_all(drill)
    results = drill.results()
    alive = {c.subject for c in state_of(drill.lab).cases if c.role == "alive"}
    assert {results[subject] for subject in alive} == {"harmful"}


def assert_hidden(lab: Lab, cases: tuple[Case, ...]) -> None:
    """Neither a drill's file nor the processes of live applications tell which id lives."""
    folder = lab.folder
    texts = [(folder / FILE).read_bytes()]
    for case in cases:
        if case.owner:
            texts.append(Path(f"/proc/{case.owner.pid}/cmdline").read_bytes())
            environ = Path(f"/proc/{case.owner.pid}/environ").read_bytes().split(b"\0")
            texts += [word for word in environ if not word.startswith(b"PYTEST_")]
    texts += [p.name.encode() + p.read_bytes() for p in folder.glob("owners/*")]
    for case in cases:
        names = [str(case.transactional_id), str(case.topic), "orphan", "alive"]
        assert not any(name.encode() in text for name in names for text in texts)


@pytest.mark.long
def test_a_drill_cleans_up(drill: Trainee) -> None:
    before = set(topics(drill))
    drill.begin("orphan")
    cases = state_of(drill.lab).cases
    second = drill.drill("overdue")
    assert (second.status, "already" in second.stderr) == (2, True)
    assert drill.drill("--ask", "nobody-knows-it", "-o", "json").rows[0]["answer"] == "unknown"
    ended = drill.drill("--end")
    assert ended.status == 0, ended.stderr
    assert not any(case.owner and case.owner.alive for case in cases)
    assert set(topics(drill)) <= before
    assert drill.held() == []
    for words in (("--grade",), ("--end",), ("--ask", "x"), ("nothing",), ("orphan", "--grade")):
        assert drill.drill(*words).status == 2


def topics(trainee: Trainee) -> list[str]:
    rows = eoctl("lso", "--all", "-o", "json", lab=trainee.lab).rows
    return [row["topic"] for row in rows]
