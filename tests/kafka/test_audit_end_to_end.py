"""`audit end-to-end` on real topics: what was planted is found, and nothing else."""

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.engine import end_to_end_task, id_buckets
from eoctl.lab.cluster import Lab
from eoctl.operations.audit import end_to_end
from tests.docs.pages import follows
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import commit
from tests.kafka.planting import as_published
from tests.kafka.reading import Reading
from tests.kafka.test_mirror_maker import visible
from tests.share import fewer

INPUTS, OUTPUTS = 3, 2
Places = dict[bytes, list[tuple[int, int]]]
"""Id → partition and offset of each record."""


@dataclass
class World:
    """An input and its output; the id is the header `id`, the value says who wrote it."""

    lab: Lab
    source: str
    output: str
    planted: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def audit(self, *words: str, by: str = "header:id", output: str | None = None) -> Ran:
        ran = eoctl(
            *("audit", "end-to-end", self.source, output or self.output, "--by", by),
            *("-o", "json", "--limit", "100000"),
            *words,
            lab=self.lab,
            timeout=600,
        )
        return as_published(ran, "audit-end-to-end") if ran.stdout else ran

    def commit(self, offsets: Sequence[int], epoch: int = 0) -> str:
        group = f"{self.source}-{uuid.uuid4().hex[:8]}"
        places = {(self.source, p): at for p, at in enumerate(offsets)}
        commit(self.lab, group, places, epoch=epoch)
        return group


def send(
    lab: Lab, topic: str, partitions: int, transactions: Sequence[tuple[str, Sequence[bytes]]]
) -> Producer:
    """Transactions, each with its end (commit, abort) and the ids of its records; `open` stays."""
    producer = Producer({**lab.client_properties(), "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    for end, ids in transactions:
        producer.begin_transaction()
        for one in ids:
            number = int(one)
            where = f"{number % 3}".encode(), f"{number}".encode()
            headers = [("id", one), ("source.partition", where[0]), ("source.offset", where[1])]
            producer.produce(topic, one, partition=number % partitions, headers=headers)
            producer.poll(0)
        assert producer.flush(30) == 0
        if end != "open":
            getattr(producer, f"{end}_transaction")(20)
    return producer


def places(lab: Lab, topic: str, partitions: int) -> Places:
    """Where a read_committed consumer gets each id: the value is the id."""
    found: Places = defaultdict(list)
    for p in range(partitions):
        for offset, value in visible(lab, topic, p):
            found[value].append((p, offset))
    return found


def of(row: dict[str, object], side: str) -> list[tuple[int, int]]:
    return [(p["partition"], p["offset"]) for p in row[side]]  # type: ignore[attr-defined]


@pytest.fixture
def world(lab1: Lab, topic: MakeTopic) -> World:
    return World(lab1, topic(lab1, INPUTS), topic(lab1, OUTPUTS))


def plant(world: World, count: int) -> None:
    """Inputs, every fifth transaction aborted; outputs that lack some, repeat some, and read some
    that were aborted."""
    rng = random.Random(17)
    ids = [b"%d" % n for n in range(count)]
    size, given, made = 100, [], []
    for number, at in enumerate(range(0, count, size)):
        mine, end = ids[at : at + size], "abort" if number % 5 == 3 else "commit"
        given.append((end, mine))
        outputs = []
        for one in mine:
            fault = rng.random()
            if end == "abort":
                if fault < 0.02:
                    world.planted["aborted-input"].add(one)
                    outputs.append(one)
            elif fault < 0.01 and at < count - 5 * size:  # the last ones may still wait
                world.planted["no-output"].add(one)
            elif fault < 0.02:
                world.planted["repeated"].add(one)
                outputs += [one, one] if fault < 0.015 else [one] * 3
            else:
                outputs.append(one)
        if number % 7 == 2:
            made.append(("abort", outputs))  # and again: an attempt that failed
        made.append(("commit", outputs))
    send(world.lab, world.source, INPUTS, given)
    send(world.lab, world.output, OUTPUTS, made)


@follows("docs/audit.md", "end-to-end")
def test_what_was_planted_is_found_and_nothing_else(it: Reading, world: World) -> None:
    """For no cut, a group's commits, and an instant; by a header and by the value."""
    count = fewer(200_000, 6_000)
    plant(world, count)
    inputs, outputs = (
        places(world.lab, topic, n) for topic, n in ((world.source, 3), (world.output, 2))
    )
    ends = [max(at[1] for w in inputs.values() for at in w if at[0] == p) + 1 for p in range(3)]
    group = world.commit(ends)
    for words, by in (
        ((), "header:id"),
        (("--group", group), "value"),
        (("--end", "lso"), "value"),
    ):
        ran = world.audit(*words, by=by)
        assert ran.status == 1, ran.text
        found: dict[str, set[bytes]] = defaultdict(set)
        names = {at: one for one, where in inputs.items() for at in where}
        made = {at: one for one, where in outputs.items() for at in where}
        for row in ran.rows:
            kind = row["finding"]
            one = made[of(row, "outputs")[0]] if row["outputs"] else names[of(row, "inputs")[0]]
            found[kind].add(one)
            assert sorted(of(row, "outputs")) == sorted(outputs.get(one, []))[:10]
            assert row["records"] == max(1, len(outputs.get(one, ())) - (kind == "repeated"))
            assert row["proven"] is True
            if kind != "aborted-input":
                assert of(row, "inputs") == inputs[one]
        assert found == world.planted
        assert ran.json["findings"] == sum(map(len, found.values()))
        assert sum(p["records"] for p in ran.json["inputs"]) == sum(map(len, inputs.values()))
        assert sum(p["behind"] + p["pending"] for p in ran.json["inputs"]) == 0
        assert sum(p["without_input"] for p in ran.json["outputs"]) == 0
        assert sum(p["aborted"] for p in ran.json["outputs"]) > 100
    it.lab = world.lab
    it.names |= {"orders": world.source, "enriched": world.output, "enricher": group}
    assert "findings in" in it.run("audit end-to-end", 1).text


def test_by_the_source_that_outputs_name(lab1: Lab, topic: MakeTopic) -> None:
    """The headers name partition and offset; the inputs have no id at all."""
    source, output = topic(lab1, 1), topic(lab1, 2)
    producer = Producer(lab1.client_properties())
    for _ in range(300):
        producer.produce(source, b"the same")
    producer.flush(20)
    for at in [n for n in range(300) if n not in (7, 200)] + [40, 41]:
        headers = [("source.partition", b"0"), ("source.offset", b"%d" % at)]
        producer.produce(output, b"made", headers=headers, partition=at % 2)
    producer.flush(20)
    ran = World(lab1, source, output).audit(by="source")
    assert ran.status == 1, ran.text
    found = {(r["finding"], of(r, "inputs")[0][1]) for r in ran.rows}
    assert found == {("no-output", 7), ("no-output", 200), ("repeated", 40), ("repeated", 41)}
    wrong = World(lab1, source, output).audit("--source-index", "n", by="source")
    assert (wrong.status, "--source-index" in wrong.stderr) == (2, True)


def test_what_may_still_come_is_no_finding(world: World) -> None:
    """After the cut, and in a transaction that is open; before a group's commit it is one."""
    ids = [b"%d" % n for n in range(600)]
    send(world.lab, world.source, INPUTS, [("commit", ids)])
    ends = [("commit", ids[:400]), ("open", ids[400:450])]
    producer = send(world.lab, world.output, OUTPUTS, ends)
    ran = world.audit()
    assert (ran.status, ran.rows) == (0, []), ran.text
    assert sum(p["behind"] for p in ran.json["inputs"]) == 200
    inputs = places(world.lab, world.source, INPUTS)
    cut = [
        max(inputs[one][0][1] for one in ids[:480] if inputs[one][0][0] == p) + 1 for p in (0, 1, 2)
    ]
    ran = world.audit("--group", world.commit(cut))
    assert ran.status == 1
    assert {of(r, "inputs")[0] for r in ran.rows} == {inputs[one][0] for one in ids[450:480]}
    assert sum(p["pending"] for p in ran.json["inputs"]) == 50
    assert sum(p["behind"] for p in ran.json["inputs"]) == 120
    ran = world.audit("--group", world.commit(cut[:2], epoch=-1))
    assert (ran.status, ran.json["findings"]) == (3, 0)
    assert {row["proven"] for row in ran.rows} == {False}
    assert "has committed nothing here: none of its inputs is judged" in ran.text
    assert "is not proven to be of this log" in ran.text
    producer.abort_transaction(20)


def test_what_retention_or_compaction_took_is_not_proven(world: World, topic: MakeTopic) -> None:
    ids = [b"%d" % n for n in range(300)]
    send(world.lab, world.source, INPUTS, [("commit", ids)])
    send(world.lab, world.output, OUTPUTS, [("commit", [i for i in ids if i != b"290"])])
    cut = TopicPartition(world.output, 0, 50)
    admin = AdminClient(world.lab.client_properties())  # or it is gone before its answer comes
    admin.delete_records([cut])[cut].result(60)
    ran = world.audit()
    assert ran.status == 3
    lost = {of(r, "inputs")[0] for r in ran.rows if r["proven"]}
    assert len(lost) == 1, "after inputs of its partition whose output is there"
    assert ran.json["findings"] == 1
    assert sum(p["unproven"] for p in ran.json["inputs"]) == 50
    older = TopicPartition(world.source, 0, 30)
    admin.delete_records([older])[older].result(60)
    ran = world.audit()
    assert (ran.status, ran.json["findings"]) == (3, 1)
    assert sum(p["unproven"] for p in ran.json["inputs"]) == 35, "15 inputs are gone, too"
    assert [p["log_start_offset"] for p in ran.json["inputs"]] == [30, 0, 0]
    words = ("audit", "end-to-end", world.source, world.output, "--by", "value")
    assert (
        "older inputs of 1 partition are deleted and unknown" in eoctl(*words, lab=world.lab).text
    )
    compacted = topic(world.lab, 1, 1, {"cleanup.policy": "compact"})
    producer = Producer(world.lab.client_properties())
    for one in ids[:200]:
        producer.produce(compacted, b"v", one, headers=[("id", one)])
    producer.flush(20)
    ran = world.audit("--end", "lso", output=compacted)
    assert (ran.status, ran.json["findings"]) == (3, 0)
    assert sum(p["unproven"] for p in ran.json["inputs"]) == 100


def test_ids_that_lead_nowhere_prove_nothing(world: World) -> None:
    send(world.lab, world.source, INPUTS, [("commit", [b"%d" % n for n in range(30)])])
    ran = world.audit()
    assert (ran.status, ran.rows) == (3, [])
    assert "nothing shows that outputs have this id" in ran.text
    cases = [
        (("--start", "5"), "header:id", 2, "--start"),
        (("--group", "nobody"), "header:id", 2, "it has committed nothing"),
        (("--group", "nobody", "--end", "lso"), "header:id", 2, "not both"),
        ((), "headers", 2, "--by"),
    ]
    for words, by, status, text in cases:
        ran = world.audit(*words, by=by)
        assert (ran.status, text in ran.text) == (status, True), ran.text
    assert world.audit(output=world.source).status == 2
    assert world.audit(output="no-such-topic").status == 2
    without = world.audit(by="header:other")
    assert (without.status, "no such id" in without.text) == (3, True)


def test_groups_that_came_past_aborted_outputs_are_named(world: World) -> None:
    ids = [b"%d" % n for n in range(60)]
    send(world.lab, world.source, INPUTS, [("commit", ids)])
    send(
        world.lab,
        world.output,
        OUTPUTS,
        [("commit", ids[:20]), ("abort", ids), ("commit", ids[20:])],
    )
    early, late = (f"{world.output}-{name}" for name in ("early", "late"))
    commit(world.lab, early, {(world.output, 0): 5})
    commit(world.lab, late, {(world.output, 0): 40})
    ran = world.audit()
    assert (ran.status, ran.rows) == (0, [])
    assert [(r["group"], r["partition"]) for r in ran.json["readers"]] == [(late, 0)]
    assert ran.json["readers_known"] is True
    assert (
        f"came to {late} if they read with read_uncommitted"
        in eoctl(
            *("audit", "end-to-end", world.source, world.output, "--by", "value"), lab=world.lab
        ).text
    )


def test_a_killed_run_is_continued_up_to_the_same_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed in the output; what is written meanwhile is not of this run."""
    ids = [b"%d" % n for n in range(3_000)]
    send(world.lab, world.source, INPUTS, [("commit", ids)])
    send(world.lab, world.output, OUTPUTS, [("commit", ids[:-1] + ids[:1])])
    monkeypatch.setattr(id_buckets, "ROWS", 700)
    read, times = end_to_end_task.read_rows, Counter[int]()

    def killed(cluster: object, scope: object, number: int, *rest: object) -> object:
        times[number] += 1
        if number == INPUTS + 1:
            raise KeyboardInterrupt
        return read(cluster, scope, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(end_to_end, "read_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        world.audit()
    first = dict(times)
    send(world.lab, world.output, OUTPUTS, [("commit", ids[-1:])])
    times.clear()
    monkeypatch.setattr(
        end_to_end,
        "read_rows",
        lambda c, s, n, *rest: (times.update([n]), read(c, s, n, *rest))[1],
    )
    ran = world.audit()
    assert ran.status == 1
    assert first[0] > 0
    assert times[0] == 0, "read once"
    assert [r["finding"] for r in ran.rows] == ["repeated"]
    assert ran.json["continued"] is True
    assert sum(p["behind"] for p in ran.json["inputs"]) == 1
    ran = world.audit()
    assert [r["finding"] for r in ran.rows] == ["repeated"]
    assert sum(p["behind"] for p in ran.json["inputs"]) == 0, "a new run has new ends"
    assert ran.json["continued"] is False
