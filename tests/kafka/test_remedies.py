"""Remedies on real brokers through the real command line: plan, act, verify, crash, run again."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.write import markers as repairs
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from eoctl.operations.remedy import marker as remedy_marker
from eoctl.operations.remedy import remedy_change as remedy
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from recovery.change.plan import Step
from recovery.inspect.observation import Settings
from recovery.remedy.repairs import MarkerRequest
from tests.kafka.command import FAST, environment, eoctl, unfinished
from tests.kafka.conftest import MakeTopic
from tests.kafka.remedying import abort_words, dumped_markers, held, markers_of, read_committed
from tests.share import only_here

POINTS = (
    "locked",
    "read-again",
    "begun",
    "step-1-started",
    "step-1-performed",
    "step-1-done",
    "verified",
)
FENCE_POINTS = (*POINTS, "fence-ended", "id-raised")
"""Also between EndTxn and the requests that shut the owner out."""


def test_abort_frees_readers_and_drops_only_its_records(lab3: Lab) -> None:
    [orphan] = break_(lab3, "orphan", hold=False)
    dropped = sum(o.content == "open" for o in orphan.offsets)
    visible = sum(o.content in ("plain", "committed", "idempotent") for o in orphan.offsets)
    before = read_committed(lab3, orphan.topic, orphan.partition)
    end = time.monotonic() + 60  # coordinators move and load after a broker's return
    while (shown := eoctl(*abort_words(lab3, orphan, "-o", "json"))).status == 3:
        assert time.monotonic() < end, shown.stderr
    assert shown.status == 0, shown.stderr
    row = json.loads(shown.stdout)["rows"][0]
    assert row["action"] == "abort"
    assert f"{dropped} records dropped" in row["summary"]
    assert held(lab3, orphan) == ["orphan"], "showing a plan changed something"
    done = eoctl(*abort_words(lab3, orphan, "--execute", "--yes"))
    assert done.status == 0, done.stderr
    after = read_committed(lab3, orphan.topic, orphan.partition)
    assert len(after) == visible
    assert after[: len(before)] == before
    assert held(lab3, orphan) == []
    again = eoctl(*abort_words(lab3, orphan, "--execute", "--yes"))
    assert again.status == 0
    assert "already" in again.stdout + again.stderr


@pytest.mark.parametrize("point", only_here(POINTS, "step-1-performed"))
def test_killed_anywhere_the_next_run_ends_it(lab3: Lab, point: str) -> None:
    """kill -9 at every journal step of abort; the same command again finishes or finds it done."""
    [orphan] = break_(lab3, "orphan", hold=False)
    words, before = abort_words(lab3, orphan, "--execute", "--yes"), unfinished("txn")
    killed = eoctl(*words, env=environment(EOCTL_TEST_KILL_AT=point))
    assert killed.status == -signal.SIGKILL
    ended = eoctl(*words)
    assert ended.status == 0, ended.stderr
    assert held(lab3, orphan) == []
    assert unfinished("txn") == before  # of other tests
    markers = markers_of(lab3, orphan)
    assert markers == ["abort"], "one marker, whatever the crash"


def test_an_abort_is_done_when_readers_move_on(lab3: Lab, topic: MakeTopic) -> None:
    """The leader has the marker, a replica in sync has not: no reader is free yet."""
    name = topic(lab3, 1, 2)
    [orphan] = break_(lab3, "orphan", topic=name, partition=0, hold=False)
    metadata = AdminClient(lab3.client_properties()).list_topics(name).topics[name].partitions[0]
    leader, follower = metadata.leader, next(b for b in metadata.isrs if b != metadata.leader)
    server = lab3.bootstrap_servers.split(",")[leader - 1]
    context = resolve(Connect(bootstrap_server=server))
    request = remedy.RemedyRequest(
        "abort",
        f"{name}:0",
        producer_id=orphan.producer_id,
        start_offset=orphan.start_offset,
    )

    async def planned(cluster: Cluster) -> Step:
        found = await remedy.plan(cluster, context, request, Settings(), pause=0.3)
        assert found.plan is not None
        return found.plan.steps[-1]

    step = with_cluster(context, 30.0, planned)
    marker = MarkerRequest(**{k: step.parameters[k] for k in MarkerRequest.__struct_fields__})

    async def written(cluster: Cluster) -> None:  # its answer comes once the follower has it
        with suppress(TimeoutError):
            await asyncio.wait_for(repairs.write_marker(cluster, leader, marker), 1.0)

    lab3.freeze(follower)
    try:
        with_cluster(context, 30.0, written)
        [(outcome, _)] = dumped_markers(lab3, name, 0, orphan.producer_id or 0, leader)
        assert outcome == "abort"
        seen = with_cluster(context, 30.0, lambda c: remedy_marker.ended(c, step))
        assert (seen.done, seen.detail) == (False, f"the LSO is still {orphan.start_offset}")
    finally:
        lab3.thaw(follower)
    end = time.monotonic() + 20
    while not with_cluster(context, 30.0, lambda c: remedy_marker.ended(c, step)).done:
        assert time.monotonic() < end
    assert held(lab3, orphan) == []


@pytest.mark.long
def test_an_unfinished_abort_of_another_transaction_is_not_carried_out(lab3: Lab) -> None:
    """Killed before it was sent; then another producer's abort is asked for on that partition."""
    [first] = break_(lab3, "orphan", hold=False)
    [second] = break_(
        lab3,
        "orphan",
        topic=first.topic,
        partition=first.partition,
        transactional_id=f"{first.topic}.second",
        hold=False,
    )
    assert first.producer_id != second.producer_id
    words = abort_words(lab3, first, "--execute", "--yes")
    assert eoctl(*words, env=environment(EOCTL_TEST_KILL_AT="begun")).status == -signal.SIGKILL
    other = eoctl(*abort_words(lab3, second, "--execute", "--yes"))
    assert other.status == 4, other.stdout + other.stderr
    assert "unfinished" in other.stderr
    assert held(lab3, first) == ["orphan"]
    assert held(lab3, second) == ["orphan"]
    named = eoctl("lso", lab=lab3)
    assert "unfinished" in named.stderr
    assert eoctl(*words).status == 0
    assert held(lab3, first) == []
    assert held(lab3, second) == ["orphan"]


def test_live_transactions_are_not_aborted(lab3: Lab) -> None:
    [live] = break_(lab3, "open", hold=False)
    refused = eoctl(*abort_words(lab3, live, "--execute", "--yes"))
    assert refused.status == 4
    assert "wait" in refused.stderr
    assert held(lab3, live) == ["open"]


def test_the_transaction_ends_between_plan_and_execute(lab3: Lab) -> None:
    """Planned, then ended by somebody else: refused or found done, and nothing more is sent."""
    [orphan] = break_(lab3, "orphan", hold=False)
    plan = json.loads(eoctl(*abort_words(lab3, orphan, "-o", "json")).stdout)["rows"][0]
    assert eoctl(*abort_words(lab3, orphan, "--execute", "--yes")).status == 0
    late = eoctl(*abort_words(lab3, orphan, "--execute", "--yes", "--plan-sha256", plan["sha256"]))
    assert late.status == 0
    assert markers_of(lab3, orphan) == ["abort"]


def test_a_bystander_on_the_same_partition_survives(lab3: Lab) -> None:
    """Another transaction is open on the orphan's partition: it commits after the abort."""
    from eoctl.lab.client import Client, NewRecord
    from eoctl.lab.producer import Producer

    [orphan] = break_(lab3, "orphan", hold=False)

    async def scenario() -> int:
        async with Client.to(lab3.bootstrap_servers) as client:
            bystander = await Producer.init(client, f"bystander-{orphan.topic}")
            await bystander.send(
                orphan.topic, orphan.partition, [NewRecord(b"bystander"), NewRecord(b"2")]
            )
            done = eoctl(*abort_words(lab3, orphan, "--execute", "--yes"))
            assert done.status == 0, done.stderr
            await bystander.commit()
        return done.status

    assert asyncio.run(scenario()) == 0
    got = read_committed(lab3, orphan.topic, orphan.partition)
    assert got[-2:] == [b"bystander", b"2"]


def test_the_id_begins_anew_between_plan_and_fence(lab3: Lab) -> None:
    """What was judged is over; the same id's next transaction is not touched."""
    from eoctl.lab.client import Client, NewRecord
    from eoctl.lab.producer import Producer

    async def scenario() -> None:
        async with Client.to(lab3.bootstrap_servers) as client:
            [first] = break_sync(lab3)
            name = "anew-" + first.topic
            producer = await Producer.init(client, name)
            await producer.send(first.topic, first.partition, [NewRecord(b"one")])
            server = ("--bootstrap-server", lab3.bootstrap_servers)
            gone = ("--owner-is-gone", "--sample-interval", "0.3s")
            shown = eoctl("txn", "fence", name, *gone, *server, "-o", "json")
            assert shown.status == 0, shown.stderr
            row = shown.rows[0]
            observed = row["observed"][f"id {name}"]
            # producer id 0 is one like any other, and not this one
            epoch = str(observed["producer_epoch"])
            wrong = eoctl("txn", "fence", name, "--pid", "0", "--epoch", epoch, *server)
            assert observed["producer_id"] != 0
            assert wrong.status == 4, wrong.stdout
            await producer.commit()
            await producer.send(first.topic, first.partition, [NewRecord(b"two")])
            late = eoctl(
                "txn",
                "fence",
                name,
                "--pid",
                str(observed["producer_id"]),
                "--epoch",
                str(observed["producer_epoch"]),
                "--plan-sha256",
                row["sha256"],
                *gone,
                *server,
                "--execute",
                "--yes",
            )
            assert late.status == 4, late.stdout + late.stderr
            await producer.commit()
        assert b"two" in read_committed(lab3, first.topic, first.partition)

    asyncio.run(scenario())


def test_an_outcome_that_nobody_knows_is_written_only_without_proof(lab3: Lab) -> None:
    """The producer id stands in no log of __transaction_state: no look will ever tell."""
    [lost] = break_(lab3, "orphan", variant="nameless", hold=False)
    where, pid, start = f"{lost.topic}:{lost.partition}", lost.producer_id, lost.start_offset
    which = ("--pid", str(pid), "--start-offset", str(start), "--sample-interval", "0.3s")
    words = ("txn", "resolve", where, *which, "--outcome", "commit")
    plain = eoctl(*words, "--execute", "--yes", lab=lab3)
    assert plain.status in (3, 4), plain.stdout
    assert eoctl(*abort_words(lab3, lost, "--execute", "--yes")).status in (3, 4)
    before = read_committed(lab3, lost.topic, lost.partition)
    shown = eoctl(*words, "--without-proof", lab=lab3)
    assert shown.status == 0, shown.stderr
    mine = [n for n, o in enumerate(lost.offsets, start=0) if o.content == "open"]
    assert f"{len(mine)} records, offsets " in shown.text
    assert "commit delivers" in shown.text
    assert "abort drops" in shown.text
    assert held(lab3, lost) == ["unknown"], "showing a plan changed something"
    done = eoctl(*words, "--without-proof", "--execute", "--yes", "-o", "json", lab=lab3)
    assert done.status == 0, done.stderr
    step = done.rows[0]["steps"][-1]
    assert step["parameters"]["without_proof"] is True
    stake = step["about"][0]["at_stake"]
    assert (stake["records"], stake["first_offset"]) == (len(mine), start)
    assert step["about"][0]["verdict"] == "unknown"
    assert markers_of(lab3, lost) == ["commit"]
    after = read_committed(lab3, lost.topic, lost.partition)
    assert len(after) >= len(before) + len(mine)


def break_sync(lab: Lab) -> list[GroundTruth]:
    """A topic with something in it, made outside the running loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(break_, lab, "zombie").result()


def test_another_cluster_is_refused(lab3: Lab) -> None:
    [orphan] = break_(lab3, "orphan", hold=False)
    refused = eoctl(*abort_words(lab3, orphan, "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA"))
    assert refused.status == 4
    assert "cluster" in refused.stderr


def test_fence_ends_an_overdue_transaction(lab2: Lab) -> None:
    [late] = break_(lab2, "overdue")
    listed = eoctl("txn", "hanging", *FAST, "-o", "json", lab=lab2).rows
    [row] = [r for r in listed if r["topic"] == late.topic]
    assert row["verdict"] == "overdue"
    assert row["remedy"]["action"] == "fence"
    argv = row["remedy"]["argv"][1:]
    shown = eoctl(*argv[:-2], *FAST, *argv[-2:])
    assert shown.status == 0, shown.stderr
    assert held(lab2, late) == ["overdue"]
    epoch = str((late.current_producer_epoch or 0) + 5)
    which = (late.transactional_id or "", "--pid", str(late.producer_id), "--epoch", epoch)
    stale = eoctl("txn", "fence", *which, *FAST, "--execute", "--yes", lab=lab2)
    assert stale.status == 4
    assert held(lab2, late) == ["overdue"]
    done = eoctl(*argv[:-2], *FAST, "--execute", "--yes", *argv[-2:])
    assert done.status == 0, done.stderr
    assert held(lab2, late) == []


@pytest.mark.parametrize(
    ("version", "points"),
    [
        (2, ("step-1-performed", "fence-ended")),
        pytest.param(2, FENCE_POINTS, marks=pytest.mark.long),
        pytest.param(1, FENCE_POINTS, marks=pytest.mark.long),
    ],
    ids=("2-here", "2", "1"),
)
def test_fence_killed_anywhere_the_next_run_ends_it(
    lab1: Lab, start_lab: Callable[[LabSpec], Lab], version: int, points: tuple[str, ...]
) -> None:
    """kill -9 at every journal step of fence, on transactions v2 and v1."""
    lab = lab1
    if version == 1:
        lab = start_lab(LabSpec(name="fencekill1", transaction_version=1))
    before = unfinished("txn")
    for point in points:
        [live] = break_(lab, "open", hold=False)
        words = ["txn", "fence", live.transactional_id or "", "--owner-is-gone", *FAST]
        words += ["--execute", "--yes"]
        killed = eoctl(*words, lab=lab, env=environment(EOCTL_TEST_KILL_AT=point))
        assert killed.status == -signal.SIGKILL, (point, killed.stderr)
        ended = eoctl(*words, lab=lab)
        assert ended.status == 0, (point, ended.stderr)
        assert held(lab, live) == []
        assert unfinished("txn") == before, point


def test_a_read_only_context_sends_nothing(lab3: Lab, tmp_path: Path) -> None:
    [orphan] = break_(lab3, "orphan", hold=False)
    config = tmp_path / "config.toml"
    config.write_text(
        f'[contexts.look]\nbootstrap_servers = "{lab3.bootstrap_servers}"\nread_only = true\n'
    )
    words = abort_words(lab3, orphan, "--execute", "--yes")
    at = words.index("--bootstrap-server")
    del words[at : at + 2]
    refused = eoctl(*words, "--context", "look", env=environment(EOCTL_CONFIG=str(config)))
    assert refused.status == 4
    assert "read-only" in refused.stderr
    assert held(lab3, orphan) == ["orphan"]
