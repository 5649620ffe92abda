"""The lost COMMIT marker on real brokers: told from an orphan, resolved, never destroyed."""

import asyncio
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.client import Client, NewRecord
from eoctl.lab.cluster import Lab
from eoctl.lab.producer import Producer
from eoctl.lab.record import LabSpec
from tests.kafka.command import environment, eoctl
from tests.kafka.diagnosing import judged
from tests.kafka.relay import END_TXN, INIT_PRODUCER_ID, WRITE_TXN_MARKERS, relayed
from tests.kafka.remedying import abort_words, read_committed
from tests.share import only_here


@pytest.fixture(scope="module")
def lossy_labs(start_lab: Callable[[LabSpec], Lab]) -> Callable[[int], Lab]:
    """A lab per transaction.version: two brokers, one of which each break stops and starts."""
    return cache(
        lambda version: start_lab(
            LabSpec(name=f"lossy{version}", brokers=2, transaction_version=version)
        )
    )


@pytest.fixture
def lossy(lossy_labs: Callable[[int], Lab], version: int) -> Lab:
    return lossy_labs(version)


@pytest.mark.parametrize(
    ("version", "later"),
    only_here(
        [(version, later) for version in (2, 1) for later in (None, "elsewhere", "open")],
        (2, "open"),
    ),
)
def test_a_lost_commit_marker_is_never_an_orphan(
    lossy: Lab, later: str | None, tmp_path: Path
) -> None:
    """Replication 1, its broker stopped cleanly before EndTxn."""
    options = {} if later is None else {"later": later}
    truth = [t for t in break_(lossy, "marker-lost", **options) if t.verdict == "marker-lost"]
    assert truth
    found = judged(lossy, *{t.topic for t in truth})
    lost = {j.about.topic_partition: j.verdict for j in found.judged}
    for t in truth:
        verdict = lost[t.topic_partition]
        assert verdict.name == "marker-lost", (verdict.rule, verdict.evidence)
        assert verdict.proven_outcome == "commit"
        assert verdict.mixed == (later == "open") == t.mixed
        assert verdict.remedy.action == ("wait" if later == "open" else "resolve")
    if later == "open":
        for t in truth:
            _nothing_destroys(lossy, t)
            _its_owners_commit_saves(lossy, t, tmp_path)


def _nothing_destroys(lab: Lab, t: GroundTruth) -> None:
    """Of a mixed one no remedy is carried out: each would abort or cover committed records."""
    words = ("--bootstrap-server", lab.bootstrap_servers, "--sample-interval", "0.5s")
    which = ("--pid", str(t.producer_id), "--start-offset", str(t.start_offset))
    where = f"{t.topic}:{t.partition}"
    for remedy in (
        ("abort", where, *which),
        ("resolve", where, *which, "--outcome", "abort"),
        ("resolve", where, *which, "--outcome", "commit"),
        ("fence", t.transactional_id or ""),
    ):
        refused = eoctl("txn", *remedy, *words, "--execute", "--yes")
        assert refused.status == 4, (remedy, refused.stdout, refused.stderr)
    assert {j.verdict.name for j in judged(lab, where).judged} == {"marker-lost"}


def _its_owners_commit_saves(lab: Lab, t: GroundTruth, folder: Path) -> None:
    """Its owner is dead: its coordinator commits the open transaction, what was lost with it."""
    where, name = f"{t.topic}:{t.partition}", t.transactional_id or ""
    which = ("--pid", str(t.producer_id), "--start-offset", str(t.start_offset))
    words = ("txn", "resolve", where, *which, "--sample-interval", "0.3s", "--outcome")
    gone = (*words, "commit", "--owner-is-gone")
    wrong = eoctl(*words, "abort", "--owner-is-gone", lab=lab)
    assert wrong.status == 2, wrong.stderr
    many = eoctl("txn", "hanging", where, "--plan", str(folder / "many.json"), *words[6:8], lab=lab)
    assert "commit-open" not in many.stdout
    assert not (folder / "many.json").exists()
    lost = [n for n, o in enumerate(t.offsets) if o.content == "lost"]
    undecided = [n for n, o in enumerate(t.offsets) if o.content == "open"]
    assert lost
    assert undecided
    before = read_committed(lab, t.topic, t.partition)
    planned = eoctl(*gone, "-o", "json", lab=lab)
    assert planned.status == 0, planned.stderr
    [step] = planned.rows[0]["steps"]
    assert (step["action"], step["target"]) == ("commit-open", name)
    [about] = step["about"]
    stake = about["at_stake"]
    if lab.record.spec.transaction_version == 2:  # the epoch tells which are undecided
        assert stake["records"] == len(undecided)
        assert (stake["first_offset"], stake["last_offset"]) == (undecided[0], undecided[-1])
    else:
        assert stake["records"] == len(lost) + len(undecided)
    assert "its coordinator aborts it within" in " ".join(step["harms"])
    assert read_committed(lab, t.topic, t.partition) == before, "showing a plan changed something"

    with relayed(lab) as relay:
        env = environment(EOCTL_CONFIG=relay.config(folder))
        act = (*gone, "--execute", "--yes", "--context", "relayed")
        assert eoctl(*act, env=env | {"EOCTL_TEST_KILL_AT": "begun"}).status < 0
        asyncio.run(_as_its_owner(lab, t))  # who writes is not gone
        alive = eoctl(*act, env=env)
        assert alive.status == 4, alive.stdout + alive.stderr
        assert f"wrote {where} [1]" in alive.stderr
        assert relay.changing == []
        done = eoctl(*act, "-o", "json", env=env)
        assert done.status == 0, done.stderr
        keys = [key for _, key in relay.changing]
        assert keys[:1] == [END_TXN]
        assert set(keys[1:]) == {INIT_PRODUCER_ID}  # until its owner can write no more
    after = read_committed(lab, t.topic, t.partition)
    data = [o for o in t.offsets if o.content in ("plain", "committed", "idempotent")]
    assert len(after) == len(data) + len(lost) + len(undecided) + 1
    assert after[-1] == b"one more"
    assert set(after) > set(before)
    assert judged(lab, where).judged == ()
    entry = eoctl("journal", "show", done.rows[0]["journal"], "-o", "json").json
    kept = entry["plan"]["steps"][0]
    assert kept["parameters"]["owner_is_gone"] is True
    assert (kept["about"][0]["verdict"], kept["about"][0]["rule"]) == (
        "marker-lost",
        "earlier-marker-lost",
    )
    again = eoctl(*gone, "--execute", "--yes", lab=lab)
    assert (again.status, "done already" in again.stdout) == (0, True), again.stderr


async def _as_its_owner(lab: Lab, t: GroundTruth) -> None:
    async with Client.to(lab.bootstrap_servers) as client:
        row = (await client.producers(t.topic, t.partition))[t.producer_id or 0]
        owner = Producer(client, row.producer_id, row.producer_epoch, t.transactional_id)
        owner.sequences[t.topic_partition] = (row.last_sequence or 0) + 1
        await owner.send(t.topic, t.partition, [NewRecord(b"one more")])


@pytest.mark.parametrize("version", only_here([2, 1], 2))
def test_a_lost_commit_is_resolved_not_aborted(lossy: Lab, tmp_path: Path) -> None:
    [lost] = break_(lossy, "marker-lost")
    refused = eoctl(*abort_words(lossy, lost, "--execute", "--yes"))
    assert refused.status == 4
    assert "resolve" in refused.stderr
    words = abort_words(lossy, lost)
    words[1] = "resolve"
    wrong = eoctl(*words, "--outcome", "abort", "--execute", "--yes")
    assert wrong.status == 4
    assert "commit" in wrong.stderr
    planned = eoctl(*words, "--outcome", "commit", "-o", "json").rows[0]
    steps = {step["action"]: step for step in planned["steps"]}
    if lossy.record.spec.transaction_version == 1:
        # no request raises an id only while it is idle: the plan must say what that may cost
        assert (
            f"a transaction that its application begins at this moment on {lost.topic}:"
            f"{lost.partition} is aborted, and that abort drops the committed records that wait "
            "there"
        ) in steps["raise-id"]["harms"]
    else:
        assert list(steps) == ["write-marker"]
    at = words.index("--bootstrap-server")
    with relayed(lossy) as relay:
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        words = [*words[:at], "--context", "relayed", *words[at + 2 :]]
        done = eoctl(*words, "--outcome", "commit", "--execute", "--yes", env=env)
    assert done.status == 0, done.stderr
    *raised, last = relay.changing
    assert last == (lost.leader, WRITE_TXN_MARKERS)
    # under v1 its idle id could still write with the marker's epoch
    assert [key for _, key in raised] == (
        [END_TXN, INIT_PRODUCER_ID, INIT_PRODUCER_ID]
        if lossy.record.spec.transaction_version == 1
        else []
    )
    after = read_committed(lossy, lost.topic, lost.partition)
    assert len(after) == sum(
        o.content in ("lost", "plain", "committed", "idempotent") for o in lost.offsets
    )


@pytest.mark.long
def test_a_lost_marker_whose_history_was_compacted_is_unknown(
    start_lab: Callable[[LabSpec], Lab],
) -> None:
    """The Prepare record vanishes under what follows it: a missing proof proves nothing."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    lab = start_lab(
        LabSpec(name="compacted", brokers=2, settings={"log.cleaner.backoff.ms": "200"})
    )
    try:
        [lost] = [t for t in break_(lab, "marker-lost") if t.verdict == "marker-lost"]
        assert lost.transactional_id is not None
        name: str = lost.transactional_id
        elsewhere = break_(lab, "zombie")[0]
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            "__transaction_state",
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in (
                    ("segment.ms", "1000"),
                    ("min.cleanable.dirty.ratio", "0.001"),
                    ("max.compaction.lag.ms", "1000"),
                )
            ],
        )
        admin = AdminClient(lab.client_properties())
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(20)

        async def go_on() -> None:
            async with Client.to(lab.bootstrap_servers) as client:
                producer = await Producer.init(client, name)
                await producer.send(elsewhere.topic, elsewhere.partition, [NewRecord(b"x")])
                await producer.commit()

        verdicts: list[str] = []
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and verdicts[-1:] != ["unknown"]:
            asyncio.run(go_on())
            time.sleep(1.5)
            found = judged(lab, lost.topic)
            verdicts += [j.verdict.name for j in found.judged]
            assert all(j.verdict.remedy.action != "abort" for j in found.judged)
        assert set(verdicts) <= {"marker-lost", "unknown"}
        assert verdicts[-1] == "unknown", verdicts
    finally:
        lab.down()
