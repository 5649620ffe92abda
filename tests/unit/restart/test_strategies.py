"""Every refusal of docs/restart.md, one case each, and what a plan says besides."""

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from recovery.errors import IncompleteError, RefusedError
from recovery.facts import ProducerFacts, TopicPartition
from recovery.formats.counting import Counts
from recovery.formats.spark_checkpoint import Checkpoint
from recovery.restart.commits import OutputEvidence
from recovery.restart.decide import changes, decide, wants
from recovery.restart.decision import Owner, PendingError, RestartPlan
from recovery.restart.input_rules import moved, visible
from recovery.restart.observed import (
    CommitOf,
    Count,
    Counted,
    FlinkFacts,
    InCommit,
    LogEnd,
    Observed,
    PendingCommit,
    Question,
    SameLog,
    TimeAt,
    Walk,
)
from recovery.restart.stored import StoredOffset, StoredOutput, StoredPartition
from recovery.shared.app_file import App, MergeLog
from recovery.shared.log_position import Standing
from recovery.shared.store_tables import (
    FileStore,
    FlinkCheckpointStore,
    KafkaGroupStore,
    SparkCheckpointStore,
)
from recovery.values import replace
from tests.unit.restart_model import ABORTED, DATA, MISSING, OPEN, Entry, World, with_reads

FILE = FileStore(kind="file", path="p")
GROUP = KafkaGroupStore(kind="kafka-group", group="g")
SPARK = SparkCheckpointStore(kind="spark-checkpoint", path="/c")
FLINK = FlinkCheckpointStore(kind="flink-checkpoint", path="/f/chk-4")
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)


IF_DEAD = "only if the old process is dead, which is not proven"


def app(strategy: Any = "commit-pair", **more: Any) -> App:
    fields = {"name": "a", "strategy": strategy, "inputs": ("in",), "outputs": ("out",)}
    return App(**fields | {"store": FILE} | more)


def entry(i: int = 4, o: int = 2, partition: int = 0, **more: Any) -> StoredPartition:
    """more: fields of the input; with `out_` before their name, of the output."""
    out: dict[str, Any] = {"topic": "out", "partition": partition, "offset": o}
    out |= {k.removeprefix("out_"): v for k, v in more.items() if k.startswith("out_")}
    inp = {k: v for k, v in more.items() if not k.startswith("out_")}
    return StoredPartition(
        input=StoredOffset(topic="in", partition=partition, offset=i, **inp),
        output=(StoredOutput(**out),),
    )


def world(*entries: StoredPartition, inputs: int = 8, outputs: int = 5) -> World:
    """`in` with 8 records; `out` with 5, of which 3 were written after the commit (4, 2)."""
    made = World()
    for number in range(inputs):
        made.log("in").write(number)
    for number in range(outputs):
        made.log("out").write(number, 7)
    made.commit(*(entries or (entry(),)))
    return made


def answered(made: World, application: App, change: Callable[[Observed], Observed]) -> Observed:
    """All answers, with `change` made to the facts each time they are looked at."""
    answers: dict[Question[Any], Any] = {}
    for _ in range(8):
        observed = change(made.observe(answers))
        questions = wants(application, observed)
        if not questions:
            return observed
        for want in questions:
            answers[want] = made.answer(want)
    raise AssertionError(questions)


def refused(
    made: World,
    application: App | None = None,
    change: Callable[[Observed], Observed] = lambda o: o,
) -> RefusedError:
    application = application or app()
    with pytest.raises(RefusedError) as caught:
        decide(application, answered(made, application, change))
    assert caught.value.where
    assert caught.value.exit_status == 4
    return caught.value


def plan(
    made: World,
    application: App | None = None,
    change: Callable[[Observed], Observed] = lambda o: o,
) -> RestartPlan:
    application = application or app()
    return decide(application, answered(made, application, change))


def held(found: RestartPlan, name: str) -> bool | None:
    """The worst that is said of a check."""
    said = [c.held for c in found.checks if c.name == name]
    assert said, f"{name} is not among {[c.name for c in found.checks]}"
    return False if False in said else None if None in said else True


def test_the_pair_of_the_world() -> None:
    found = plan(world())
    (i,), (o,) = found.inputs, found.outputs
    assert (i.current_offset, i.restart_offset, i.direction, i.records) == (4, 4, "none", 0)
    assert (o.start, o.end_offset, o.leader_epoch, o.drop_first, o.fed_by) == (2, 5, 0, 3, (IN,))
    assert found.guarantee == "exactly-once"
    assert "out:0 [2, 5) holds 3" in found.because
    assert found.store == (entry(),)
    for name in ("retained", "end-final", "range-whole", "sequences"):
        assert held(found, name) is True
    for name in (
        "deterministic",
        "exclusive",
        "fenced",
        "leader-epoch",
        "not-compacted",
        "topic-id",
    ):
        assert held(found, name) is None


def test_only_outputs_that_are_dropped_are_named_as_such() -> None:
    both = (
        StoredOutput(topic="out", partition=0, offset=2),
        StoredOutput(topic="out2", partition=0, offset=1),
    )
    made = world(StoredPartition(input=entry().input, output=both))
    made.log("out2").write("y", 9)
    because = plan(made, app(outputs=("out", "out2"))).because
    assert because.endswith("when they come again: out:0 [2, 5) holds 3")


def test_a_guarantee_hangs_on_the_old_process_only_where_it_was_not_fenced() -> None:
    made = world()
    assert plan(made).because.startswith(f"{IF_DEAD}; the input offset was committed")
    made.fenced = {7}
    assert plan(made).because.startswith("the input offset was committed with the output offset")
    plain = in_transaction(entry(8), written=False)
    plain.commit(entry(8))
    found = plan(plain, GROUPED)
    assert (found.guarantee, held(found, "fenced")) == ("at-least-once", None)
    assert found.because.startswith("the group's offset was committed outside of a transaction")


def test_what_a_first_plan_writes_into_the_store() -> None:
    """Of a group the offset alone; of a checkpoint nothing, since its state is not eoctl's."""
    start = StoredOffset(topic="in", partition=0, offset=0)
    never = world(outputs=0)
    never.log("out")
    never.stored = '{"partitions":[]}'
    assert plan(never, app("transactional", store=GROUP)).store == (StoredPartition(input=start),)
    assert plan(never, app("checkpoint")).store == ()
    assert plan(never).store == (
        StoredPartition(input=start, output=(StoredOutput(topic="out", partition=0, offset=0),)),
    )


def test_without_outputs_after_the_commit_it_says_so_and_without_outputs_it_does_not() -> None:
    because = "the input offset was committed with the output offset"
    assert plan(world(entry(4, 5))).because == (
        f"{IF_DEAD}; {because}; no output was written after it"
    )
    found = plan(spark(3, 3), app("spark-checkpoint", store=SPARK, outputs=()))
    assert found.because == "Spark replays the batch in flight with exactly its ranges"


# The output's range


def test_missing_outputs() -> None:
    made = world()
    made.log("out").entries[3].kind = MISSING
    made.log("out").policy = "compact"
    assert "[2, 5) lacks 1 offset (compacted or deleted)" in refused(made).what


def test_aborted_outputs_and_markers_are_not_counted() -> None:
    made = world()
    out = made.log("out")
    out.write("x", 8, transactional=True)
    out.marker(8, ABORTED)
    out.write("y", 8, transactional=True)
    out.marker(8, DATA)
    (o,) = plan(made, app(exclusive=False)).outputs
    assert (o.start, o.end_offset, o.drop_first) == (2, 9, 4)


def test_open_outputs() -> None:
    made = world()
    made.log("out").write("x", 7, transactional=True)
    error = refused(made)
    assert "its end is not final: 1 offset is open from 5 on" in error.what
    assert error.where == "out:0"

    def settled(observed: Observed) -> Observed:
        """The end looked final, and counting found something open all the same."""
        return with_reads(observed, OUT, reads=(LogEnd(6, 6, 6),) * 2)

    assert made.log("out").entries[-1].kind == OPEN
    assert "[2, 6) holds 1 record of open" in refused(made, change=settled).what


@pytest.mark.parametrize(
    ("reads", "what"),
    [
        ((LogEnd(6, 5, 5), LogEnd(6, 5, 5)), "log ends at 6, it is replicated up to 5"),
        ((LogEnd(5, 5, 5), LogEnd(6, 5, 5)), "log ends at 6, it is replicated up to 5"),
        ((LogEnd(6, 5, 5), LogEnd(6, 6, 6)), "log ends at 6, it is replicated up to 5"),
        ((LogEnd(4, 4, 4), LogEnd(5, 5, 5)), "it moved from 4 to 5"),
        ((LogEnd(5, 5, 4), LogEnd(5, 5, 5)), "1 offset is open from 4 on"),
    ],
)
def test_an_end_that_is_not_final(reads: tuple[LogEnd, ...], what: str) -> None:
    assert what in refused(world(), change=lambda o: with_reads(o, OUT, reads=reads)).what


def test_an_end_that_was_not_read_twice_or_not_at_the_leader() -> None:
    once: tuple[LogEnd, ...] = (LogEnd(5, 5, 5),)
    hidden = (LogEnd(None, 5, 5), LogEnd(5, 5, 5))
    with pytest.raises(IncompleteError, match="out:0: its end was read only once"):
        plan(world(), change=lambda o: with_reads(o, OUT, reads=once))
    with pytest.raises(IncompleteError, match="out:0: its log end offset"):
        plan(world(), change=lambda o: with_reads(o, OUT, reads=hidden))


def test_an_output_offset_above_the_end() -> None:
    assert "the output offset 6 is above the end 5" in refused(world(entry(4, 6))).what


def test_outputs_below_the_log_start() -> None:
    made = world()
    made.log("out").log_start = 3
    assert "the outputs [2, 3) are gone" in refused(made).what


# Who wrote it


def test_a_producer_without_an_id() -> None:
    made = world()
    made.log("out").entries[4].producer_id = -1
    error = refused(made)
    assert "at 4 a producer without an id wrote (PID -1)" in error.what


def test_interleaved_producers() -> None:
    made = world()
    made.log("out").write("z", 8)
    made.log("out").write("a", 7)
    assert "7 at 2, 8 at 5, 7 again at 6" in refused(made).what


def test_an_aborted_zombie_between_is_no_interleaving() -> None:
    made = world()
    out = made.log("out")
    out.write("z", 8, transactional=True)
    out.marker(8, ABORTED)
    out.write("a", 7)
    assert plan(made).outputs[0].drop_first == 4


def test_producers_one_after_the_other_are_assumed_to_be_restarts() -> None:
    made = world()
    made.log("out").write("z", 8)
    found = plan(made)
    assert held(found, "exclusive") is None
    assert any("producers 7, 8 wrote one after the other" in c.detail for c in found.checks)


def said(found: RestartPlan, name: str) -> str:
    """The one sentence of a check."""
    (detail,) = {c.detail for c in found.checks if c.name == name}
    return detail


def test_one_producer_is_the_applications_own_only_where_the_store_names_it() -> None:
    found = plan(world())
    assert held(found, "exclusive") is None
    assert said(found, "exclusive").startswith("written by producer 7 alone: the application's own")
    found = plan(world(entry(**STORED)), change=known(0, 4))
    assert held(found, "exclusive") is True
    assert "written by producer 7 alone, which the store names" in said(found, "exclusive")
    found = plan(world(entry(4, 5)))
    for name in ("exclusive", "sequences", "range-whole"):
        assert held(found, name) is None, "an empty range proves nothing"
        assert "no record was looked at" in said(found, name)


def test_a_producer_that_is_not_the_stored_one() -> None:
    named = {**STORED, "out_producer_id": 9}
    found = plan(world(entry(**named)))
    assert held(found, "exclusive") is None
    assert "written by producer 7, the store names 9" in said(found, "exclusive")
    made = world(entry(**named))
    made.log("out").write("z", 8)
    found = plan(made)
    assert held(found, "exclusive") is None
    assert "producers 7, 8 wrote one after the other, the store names 9" in said(found, "exclusive")


def test_a_gap_in_the_sequences() -> None:
    made = world()
    made.log("out").entries[4].sequence += 1
    error = refused(made)
    assert "gap at 4: (epoch, sequence) (0, 4) expected, (0, 5) found" in error.what


def test_a_record_that_is_there_twice_is_a_gap_too() -> None:
    made = world()
    made.log("out").entries[4].sequence -= 1
    assert "(0, 4) expected, (0, 3) found" in refused(made).what


def test_producers_are_shown_with_their_transactional_ids() -> None:
    """Whose they are nobody can prove from a log: the operator sees every one of them."""
    made = world()
    made.log("out").write("z", 8)
    owned = lambda o: replace(o, owners={8: "billing"})  # noqa: E731
    for exclusive in (True, False):
        found = plan(made, app(exclusive=exclusive), change=owned)
        assert held(found, "exclusive") is None
        assert "7, 8 (transactional id 'billing')" in said(found, "exclusive")
    assert "(exclusive = false)" in said(found, "exclusive")


DEAD = "It was not fenced: check it, or revoke its WRITE permission"


def test_not_fenced_is_said() -> None:
    made = world()
    assert DEAD in said(plan(made), "fenced")
    for e in made.log("out").entries:
        e.transactional = True
    assert "eoctl txn fence" in said(plan(made), "fenced")
    made.fenced = {7}
    assert held(plan(made), "fenced") is True


def test_not_fenced_is_said_where_nothing_was_written_too() -> None:
    """A process that hangs with records in its buffer wakes up later."""
    made = world(entry(4, 5))
    for unknown in (None, ()):
        found = plan(made, change=partial(with_reads, partition=OUT, producers=unknown))
        assert held(found, "fenced") is None
        assert DEAD in said(found, "fenced")
    assert DEAD in said(plan(made, change=known(0, 4)), "fenced")
    in_transactions = known(0, 4, coordinator_epoch=0)
    assert "eoctl txn fence" in said(plan(made, change=in_transactions), "fenced")
    made.fenced = {7}
    assert held(plan(made, change=in_transactions), "fenced") is True
    # the stored producer counts, where the broker has forgotten it
    made.commit(entry(4, 5, **STORED | {"out_producer_id": 9}))
    assert held(plan(made, change=in_transactions), "fenced") is None
    made.fenced = {7, 9}
    assert held(plan(made, change=in_transactions), "fenced") is True


def test_a_producer_from_before_the_commit_must_be_fenced_too() -> None:
    """7 wrote the outputs after the commit; 9, which the broker remembers, may hang."""
    made = world()
    for e in made.log("out").entries:
        e.transactional = True
    made.fenced = {7}
    row = ProducerFacts("out", 0, 9, 0, 4, None, 0, None)
    change = lambda o: with_reads(o, OUT, producers=(row,))  # noqa: E731
    assert held(plan(made, change=change), "fenced") is None
    made.fenced = {7, 9}
    assert held(plan(made, change=change), "fenced") is True


STORED = {"out_producer_id": 7, "out_producer_epoch": 0, "out_last_sequence": 1}


def known(
    epoch: int, sequence: int | None, coordinator_epoch: int | None = None
) -> Callable[[Observed], Observed]:
    row = ProducerFacts("out", 0, 7, epoch, sequence, None, coordinator_epoch, None)
    return lambda o: with_reads(o, OUT, producers=(row,))


def test_the_stored_producer_leads_to_the_brokers() -> None:
    assert held(plan(world(entry(**STORED)), change=known(0, 4)), "stored-producer") is True
    unknown = plan(world(entry(**STORED)))
    assert held(unknown, "stored-producer") is None
    # A later epoch is normal: transactions version 2 raise it at each end. It begins at 0.
    assert held(plan(world(entry(**STORED)), change=known(3, -1)), "stored-producer") is True


@pytest.mark.parametrize(
    ("changes", "broker", "what"),
    [
        ({"out_last_sequence": 2}, known(0, 4), "goes on at (epoch, sequence) (0, 2)"),
        ({"out_last_sequence": 0}, known(0, 4), "goes on at (epoch, sequence) (0, 2)"),
        ({"out_producer_epoch": 1}, known(1, 4), "goes on at (epoch, sequence) (0, 2)"),
        (
            {"out_producer_epoch": 1, "out_last_sequence": None},
            known(1, 4),
            "goes on at (epoch, sequence) (0, 2)",
        ),
        ({}, known(0, 3), "the broker knows producer 7 at (epoch, sequence) (0, 3)"),
        ({}, known(0, 5), "the broker knows producer 7 at (epoch, sequence) (0, 5)"),
    ],
)
def test_a_stored_producer_that_does_not_fit(
    changes: dict[str, Any], broker: Callable[[Observed], Observed], what: str
) -> None:
    made = world(entry(**{**STORED, **changes}))
    assert what in refused(made, change=broker).what


@pytest.mark.parametrize(
    ("stored", "broker", "held"),
    [
        ({"out_producer_id": 7, "out_producer_epoch": 0}, known(0, 4), True),
        # the sequence is on one side only: its epoch is the same, which is all that is compared
        (STORED, known(0, None), True),
        # an id without an epoch, or an epoch without an id, is of no producer
        ({"out_producer_id": 7}, known(0, 4), "no check"),
        ({"out_producer_epoch": 0, "out_last_sequence": 1}, known(0, 4), "no check"),
    ],
)
def test_what_the_store_keeps_of_its_producer_is_compared_as_far_as_it_goes(
    stored: dict[str, int], broker: Callable[[Observed], Observed], held: bool | str
) -> None:
    found = plan(world(entry(**stored)), change=broker)
    said = [c.held for c in found.checks if c.name == "stored-producer"]
    assert said == ([] if held == "no check" else [held])


def test_a_stored_producer_alone_is_fenced_only_where_the_brokers_producers_were_seen() -> None:
    """What hangs is among them: without them nothing says who else may write."""
    made = world(entry(4, 5, **STORED))
    made.fenced = {7}
    assert held(plan(made), "fenced") is None
    assert held(
        plan(made, change=partial(with_reads, partition=OUT, producers=None)), "fenced"
    ) is (None)
    assert held(plan(made, change=known(0, 1)), "fenced") is True


def test_the_first_of_two_producers_may_be_the_stored_one_and_wrote_not_alone() -> None:
    made = world(entry(**STORED))
    made.log("out").write("z", 8)
    found = plan(made, change=known(0, 4))
    assert held(found, "exclusive") is None
    assert said(found, "exclusive") == (
        "producers 7, 8 wrote one after the other: the application's own, each having dropped "
        "what the one before wrote"
    )
    assert "each having dropped" not in said(plan(world()), "exclusive")


def test_of_many_producers_five_are_named() -> None:
    made = world(outputs=2)
    for producer in range(7, 13):
        made.log("out").write("x", producer)
    assert "producers 7, 8, 9, 10, 11 and 1 more wrote" in said(plan(made), "exclusive")


def test_a_process_is_fenced_by_its_id_only_where_all_that_may_live_have_one() -> None:
    """One plain producer among transactional ones is not; nor is one that the broker forgot."""
    made = world()
    for e in made.log("out").entries:
        e.transactional = True
    for coordinator_epoch, text in ((0, "eoctl txn fence"), (None, DEAD)):
        row = ProducerFacts("out", 0, 9, 0, 4, None, coordinator_epoch, None)
        change = partial(with_reads, partition=OUT, producers=(row,))
        assert text in said(plan(made, change=change), "fenced")
    forgotten = world(entry(4, 5, **STORED | {"out_producer_id": 9}))
    assert DEAD in said(plan(forgotten, change=known(0, 4, coordinator_epoch=0)), "fenced")


def test_a_range_whose_producers_were_not_read() -> None:
    def bare(observed: Observed) -> Observed:
        answers = {
            want: replace(got, producers=None) if isinstance(got, Counted) else got
            for want, got in observed.answers.items()
        }
        return replace(observed, answers=answers)

    with pytest.raises(IncompleteError, match="out:0: who wrote the range was not read"):
        plan(world(), change=bare)


def test_who_wrote_nothing_is_nobody() -> None:
    found = plan(world(entry(4, 5)), app(exclusive=False))
    assert said(found, "exclusive").endswith("(exclusive = false); written by nobody")


def test_a_stale_epoch_at_the_broker() -> None:
    stored = entry(8, 5, out_producer_id=7, out_producer_epoch=4, out_last_sequence=0)
    assert "a stale state" in refused(world(stored), change=known(3, 9)).what


# The input


def test_a_restart_above_the_last_stable_offset() -> None:
    made = world(entry(9, 2))
    made.log("in").write("open", 3, transactional=True)
    error = refused(made)
    assert error.what == "the restart offset 9 is above the last stable offset 8"
    assert error.where == "in:0"
    assert "open transactions below it must end first" in (error.remedy or "")
    # Who reads uncommitted has read it.
    found = plan(made, app(isolation="read_uncommitted"))
    assert found.inputs[0].restart_offset == 9
    made.commit(entry(10, 2))
    error = refused(made, app(isolation="read_uncommitted"))
    assert error.what == "the restart offset 10 is above the high watermark 9"
    assert "no such offset exists" in (error.remedy or "")


def test_retention() -> None:
    made = world()
    made.log("in").log_start = 6
    error = refused(made)
    assert "the offsets [4, 6) are gone" in error.what
    made.log("in").log_start = 4
    assert plan(made).inputs[0].restart_offset == 4


def test_compacted_inputs_that_must_come_again() -> None:
    made = world()
    made.log("in").policy = "compact"
    assert held(plan(made), "not-compacted") is True
    made.log("in").entries[6].kind = MISSING
    assert "[4, 8) lacks 1 offset, compacted away" in refused(made).what
    made.log("in").policy = None
    assert "compacted away" in refused(made).what
    # Nothing is dropped: nothing must come again.
    made.commit(entry(4, 5))
    assert plan(made).outputs[0].drop_first == 0


def test_a_topic_made_anew() -> None:
    error = refused(world(entry(topic_id="old")))
    assert "the topic was deleted and created again" in error.what
    assert (error.where, "old" in error.what, "id-in" in error.what) == ("in:0", True, True)
    assert refused(world(entry(out_topic_id="old"))).where == "out:0"
    found = plan(world(entry(topic_id="id-in", out_topic_id="id-out")))
    assert held(found, "topic-id") is True
    assert said(found, "topic-id") == "the topic id is the stored one"
    assert said(plan(world()), "topic-id") == "no topic id is stored beside the offset"
    # a broker that gives no ids shows nothing
    hidden = partial(with_reads, partition=IN, topic_id=None)
    assert (
        held(plan(world(entry(topic_id="id-in", out_topic_id="id-out")), change=hidden), "topic-id")
        is None
    )


def test_another_cluster() -> None:
    assert "stored for cluster x, this is c" in refused(world(entry(cluster_id="x"))).what
    assert plan(world(entry(cluster_id="c"))).guarantee == "exactly-once"


def standing(answer: Standing, *partitions: TopicPartition) -> Callable[[Observed], Observed]:
    """Answer the question whether the log is the one of the stored offset."""

    def change(observed: Observed) -> Observed:
        offsets = {s.input.topic_partition: s.input.offset for s in observed.stored}
        offsets |= {o.topic_partition: o.offset for s in observed.stored for o in s.output}
        made: dict[Question[Any], Any] = {SameLog(*p, offsets[p], 0): answer for p in partitions}
        return replace(observed, answers={**observed.answers, **made})

    return change


def test_a_leader_epoch_that_diverged() -> None:
    made = world(entry(leader_epoch=0))
    assert held(plan(made), "leader-epoch") is None  # the output's is not stored

    def shorter(partition: TopicPartition) -> Callable[[Observed], Observed]:
        return standing(Standing(False, "leader epoch 0 ends at 1", 1), partition)

    error = refused(made, change=shorter(IN))
    assert "diverged at offset 1: leader epoch 0 ends at 1" in error.what
    assert "the stored offset is 4; what" in error.what
    assert "equal below offset 1" in (error.remedy or "")
    assert refused(world(entry(out_leader_epoch=0)), change=shorter(OUT)).where == "out:0"


def test_a_leader_epoch_that_is_known_and_one_that_is_not() -> None:
    made = world(entry(leader_epoch=0, out_leader_epoch=0))
    for held in (True, None):
        change = standing(Standing(held, "so it is"), IN, OUT)
        (check,) = [c for c in plan(made, change=change).checks if c.name == "leader-epoch"]
        assert (check.held, check.detail) == (held, "so it is")


def test_a_leader_epoch_of_the_future() -> None:
    assert (
        "stored in leader epoch 5, the leader is in 0" in refused(world(entry(leader_epoch=5))).what
    )


# Store, topics, mapping


def two_partitions(*entries: StoredPartition) -> World:
    made = world(*entries)
    made.log("in", 1).write("x")
    made.log("out", 1)
    return made


def test_partitions_added() -> None:
    error = refused(two_partitions())
    assert "the store has no entry for it, but for others" in error.what
    assert error.where == "in:1"
    assert '"in:1" = 0, "out:1" = 0' in (error.remedy or "")
    found = plan(two_partitions(), app(base={"in:1": 0, "out:1": 0}))
    assert [i.restart_offset for i in found.inputs] == [4, 0]
    assert found.inputs[1].current_offset is None
    assert found.store == (entry(), entry(0, 0, 1))


def test_partitions_that_are_not_there() -> None:
    error = refused(world(entry(), entry(0, 0, partition=3)))
    assert "the store holds a position of in:3" in error.what
    made = world()
    made.log("in", 1)
    made.commit(entry(0, 0, partition=1))
    assert "it feeds out:1, which does not exist" in refused(made).what
    assert "no such topic" in refused(world(), app(outputs=("out", "nope"))).what


def test_never_committed() -> None:
    made = world()
    made.stored = '{"partitions":[]}'
    found = plan(made)
    assert (found.inputs[0].restart_offset, found.outputs[0].drop_first) == (0, 5)
    made.log("in").log_start = 1
    assert "the log starts at 1, not at 0" in refused(made).what
    assert plan(made, app(base={"in:0": 1})).inputs[0].restart_offset == 1


def test_a_pair_without_its_output() -> None:
    made = world(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=4)))
    assert "the commit names no output offset of out:0" in refused(made).what
    made = world(entry(4, 0, out_topic="other"))
    made.log("other")
    error = refused(made, app(outputs=(), mapping={"in:0": ()}, strategy="sql"))
    assert "names the output other:0, the application file does not" in error.what


def test_mapping() -> None:
    made = world(entry(4, 0, out_partition=1))
    made.log("out", 1).write("y", 9)
    found = plan(made, app(mapping={"in:0": ("out:1",)}))
    assert [(o.partition, o.drop_first) for o in found.outputs] == [(1, 1)]


def test_several_outputs_of_one_input() -> None:
    both = (
        StoredOutput(topic="out", partition=0, offset=2),
        StoredOutput(topic="out2", partition=0, offset=0),
    )
    made = world(StoredPartition(input=entry().input, output=both))
    made.log("out2").write("y", 9)
    found = plan(made, app(outputs=("out", "out2")))
    assert [(o.topic, o.drop_first, o.fed_by) for o in found.outputs] == [
        ("out", 3, (IN,)),
        ("out2", 1, (IN,)),
    ]


SHARED = app(mapping={"in:0": ("out:0",), "in:1": ("out:0",)})


def test_several_inputs_of_one_output() -> None:
    made = world(entry(4, 5), entry(1, 5, 1, out_partition=0))
    made.log("in", 1).write("x")
    found = plan(made, SHARED)
    assert [(o.topic, o.drop_first, o.fed_by) for o in found.outputs] == [
        ("out", 0, (IN, ("in", 1)))
    ]
    made.commit(entry(4, 2), entry(1, 2, 1, out_partition=0))
    assert "several inputs (in:0, in:1): in which order is recorded nowhere" in (
        refused(made, SHARED).what
    )
    made.commit(entry(4, 2), entry(1, 3, 1, out_partition=0))
    assert "in:0 was committed at its offset 2, in:1 at 3" in refused(made, SHARED).what


def test_checkpoint_without_state() -> None:
    assert "the commit holds no state" in refused(world(), app("checkpoint")).what
    kept = world(entry().model_copy(update={"state": b"s"}))
    found = plan(kept, app("checkpoint"))
    assert held(found, "state") is True
    assert said(found, "state") == "the state is the one in the commit"
    kept.stored = '{"partitions":[]}'
    assert said(plan(kept, app("checkpoint")), "state") == "the state begins empty"


# output-end


def test_an_output_with_more_records_than_its_input() -> None:
    made = world(inputs=4)
    error = refused(made, app("output-end", store=None))
    assert "the output holds 5 records since its base, the input fewer" in error.what


def test_output_end_moves_the_stores_offset() -> None:
    made = world(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=7)))
    found = plan(made, app("output-end", store=GROUP))
    (i,) = found.inputs
    assert (i.current_offset, i.restart_offset, i.direction, i.records) == (7, 5, "rewind", 2)
    assert (i.from_time, i.to_time) == (7000, 5000)
    assert found.store == (StoredPartition(input=StoredOffset(topic="in", partition=0, offset=5)),)
    made.commit(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=2)))
    assert plan(made, app("output-end", store=GROUP)).inputs[0].direction == "skip"
    # A commit that keeps a pair keeps a pair.
    made.commit(entry(2, 1))
    found = plan(made, app("output-end", store=GROUP))
    assert found.store == (entry(5, 5),)
    # the output's offset is counted, not the stored one: no log that it was stored for
    assert [c.where for c in found.checks if c.name == "topic-id"] == ["in:0"]
    made.commit(entry(2, 1, topic_id="id-in"))
    found = plan(made, app("output-end", store=GROUP))
    assert [c.held for c in found.checks if c.name == "topic-id"] == [True]


def test_what_apply_writes() -> None:
    made = world(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=7)))
    described = app("output-end", store=GROUP)
    observed = answered(made, described, lambda o: o)
    (change,) = changes(decide(described, observed), observed)
    assert (change.before, change.after) == (
        made.entries()[0],
        StoredPartition(input=StoredOffset(topic="in", partition=0, offset=5)),
    )
    observed = answered(world(), app(), lambda o: o)
    assert changes(decide(app(), observed), observed) == ()
    never = world()
    never.stored = '{"partitions":[]}'
    observed = answered(never, app(), lambda o: o)
    assert [c.before for c in changes(decide(app(), observed), observed)] == [None]


def test_output_end_says_once_who_wrote() -> None:
    """Of all outputs since the base, not again of those after the restart."""
    found = plan(world(), app("output-end", store=None))
    assert "written by producer 7 alone" in said(found, "exclusive")
    assert DEAD in said(found, "fenced")
    assert "one producer at a time" in said(found, "sequences")
    said(found, "end-final")


def test_output_end_needs_its_base() -> None:
    made = world()
    made.log("in").log_start = 1
    assert "the log starts at 1, not at 0" in refused(made, app("output-end", store=None)).what
    made = world()
    made.log("out").log_start = 1
    assert refused(made, app("output-end", store=None)).where == "out:0"
    described = app("output-end", store=None, base={"in:0": 3, "out:0": 1})
    assert plan(made, described).inputs[0].restart_offset == 7
    made.log("in").log_start = 4
    assert "the offsets [3, 4) are gone" in refused(made, described).what


def test_output_end_of_a_compacted_input() -> None:
    made = world()
    made.log("in").policy = "compact"
    made.log("in").entries[1].kind = MISSING
    assert "compacted away: the k-th record now" in refused(made, app("output-end")).what
    # It was compacted before its policy was changed.
    made.log("in").policy = "delete"
    assert "compacted away: the k-th record now" in refused(made, app("output-end")).what


def test_output_end_of_a_whole_input() -> None:
    assert held(plan(world(), app("output-end")), "not-compacted") is True


def test_output_end_to_many_outputs() -> None:
    """Each of another length: rounds do not grow with their number."""
    counts = []
    for number in (2, 6):
        names = tuple(f"out{n}" for n in range(number))
        made = world(outputs=0)
        made.stored = '{"partitions":[]}'
        for length, name in enumerate(names, 2):
            for record in range(length):
                made.log(name).write(record, 7)
        described = app("output-end", store=None, outputs=names)
        found = plan(made, described)
        assert found.inputs[0].restart_offset == 2
        assert [(o.start, o.drop_first) for o in found.outputs] == [(2, n) for n in range(number)]
        counts.append(rounds(made, described))
    assert len(counts[0]) == len(counts[1])


def test_output_end_needs_one_input_for_an_output() -> None:
    made = world(outputs=0)
    made.log("in", 1), made.log("out")
    described = app("output-end", store=None, mapping=SHARED.mapping)
    assert "2 input partitions feed it" in refused(made, described).what


def test_output_end_sees_that_its_input_was_made_anew() -> None:
    made = world(entry(topic_id="old"))
    assert (
        "the topic was deleted and created again"
        in refused(made, app("output-end", store=GROUP)).what
    )


# transactional


def test_pending_commits_are_fenced_first() -> None:
    made = world(entry(8, 5))
    made.pending = [PendingCommit("in", 0, "tx-1", 7), PendingCommit("in", 1, "tx-0", 8)]
    error = refused(made, app("transactional", store=GROUP))
    assert isinstance(error, PendingError)
    assert error.transactional_ids == ("tx-0", "tx-1")
    assert error.remedy == "eoctl txn fence tx-0 and eoctl txn fence tx-1"
    # A group is a group, whatever the strategy that keeps its offsets there.
    assert isinstance(refused(made, app(store=GROUP)), PendingError)
    made.pending = [PendingCommit("in", 0, "tx", 7, 3)]
    error = refused(made, app(store=GROUP))
    assert error.remedy == "eoctl txn fence tx --pid 7 --epoch 3"
    assert isinstance(error, PendingError)
    assert error.owners == (Owner("tx", 7, 3),)
    # beside an owner there is a batch of nobody: no fence frees the group
    made.pending.append(PendingCommit("in", 1, None, 9, way_out="pid 9 is orphan: eoctl txn abort"))
    error = refused(made, app(store=GROUP))
    assert isinstance(error, PendingError)
    assert error.owners == ()
    assert error.remedy == "pid 9 is orphan: eoctl txn abort"
    made.pending = [PendingCommit("in", 0, "a'b; rm", 7)]
    error = refused(made, app(store=GROUP))
    assert shlex.split(error.remedy or "") == ["eoctl", "txn", "fence", "a'b; rm"]
    made.pending = [PendingCommit("in", 0, None, 7)]
    error = refused(made, app(store=GROUP))
    assert "was not found" in error.what
    assert error.remedy == "find it with `eoctl txn list`"
    # an epoch without its producer id is nothing that a fence can compare
    made.pending = [PendingCommit("in", 0, "tx", None, 3)]
    assert refused(made, app(store=GROUP)).remedy == "eoctl txn fence tx"


def test_outputs_outside_of_the_transaction() -> None:
    def rows(coordinator_epoch: int) -> Callable[[Observed], Observed]:
        row = ProducerFacts("out", 0, 7, 0, 4, None, coordinator_epoch, None)
        return lambda o: with_reads(o, OUT, producers=(row,))

    made, described = world(entry(8, 5)), app("transactional", store=GROUP)
    # Producers without an id are not among those that the broker tells.
    found = plan(made, described, rows(0))
    assert held(found, "outputs-in-transaction") is None
    assert "without an id (PID -1)" in said(found, "outputs-in-transaction")
    assert "wrote outside of transactions: 7" in refused(made, described, rows(-1)).what
    foreign = plan(made, app("transactional", store=GROUP, exclusive=False), rows(-1))
    assert held(foreign, "outputs-in-transaction") is None
    unseen = plan(made, described, lambda o: with_reads(o, OUT, producers=None))
    assert held(unseen, "outputs-in-transaction") is None


def in_transaction(*entries: StoredPartition, written: bool = True) -> World:
    """`in` with 8 records, committed in a transaction; `out` with 5, of that one unless told."""
    made = World()
    for number in range(8):
        made.log("in").write(number)
    for number in range(5):
        made.log("out").write(number, 7, transactional=True)
    made.log("out").marker(7, DATA)
    made.log("in", 1), made.log("out", 1)
    made.commit(*entries, producer=7 if written else 8)
    return made


GROUPED = app("transactional", store=GROUP, base={"in:1": 0})


def test_the_guarantee_stands_on_how_the_offset_was_committed() -> None:
    found = plan(in_transaction(entry(8)), GROUPED)
    assert found.guarantee == "exactly-once"
    assert (held(found, "commit-in-transaction"), held(found, "pending")) == (True, True)
    assert "transaction of the outputs" in found.because
    found = plan(in_transaction(entry(8), written=False), GROUPED)
    assert found.guarantee == "exactly-once"
    assert held(found, "outputs-in-commit") is None
    assert found.because.startswith(
        f"{IF_DEAD}; input offsets were committed in a transaction; that"
    )
    made = in_transaction(entry(8))
    made.commit(entry(8))
    found = plan(made, GROUPED)
    assert found.guarantee == "at-least-once"
    assert held(found, "commit-in-transaction") is False
    assert "outside of a transaction: the outputs may be ahead of it (in:0)" in found.because
    assert found.inputs[0].restart_offset == 8


def test_who_committed_is_told_with_its_transactional_id_where_that_is_known() -> None:
    made = in_transaction(entry(8))
    assert "committed by producer 7 epoch 0 in a transaction" in said(
        plan(made, GROUPED), "commit-in-transaction"
    )
    owned = plan(made, GROUPED, lambda o: replace(o, owners={7: "pay", 1: "other"}))
    assert "committed by producer 7 epoch 0 (transactional id 'pay') in" in said(
        owned, "commit-in-transaction"
    )


def test_producer_ids_begin_at_0() -> None:
    made = in_transaction(entry(8))
    made.committers[IN] = 0
    found = plan(made, GROUPED, lambda o: replace(o, owners={0: "first", 1: "other"}))
    assert "producer 0 epoch 0 (transactional id 'first')" in said(found, "commit-in-transaction")


def test_one_output_that_shows_nothing_leaves_the_transaction_assumed() -> None:
    made = in_transaction(entry(8))
    for partition in (0, 1):
        made.log("out2", partition)
    found = plan(made, GROUPED.model_copy(update={"outputs": ("out", "out2")}))
    assert found.guarantee == "exactly-once"
    assert "is assumed" in found.because


@pytest.mark.parametrize(
    ("writers", "what"),
    [
        (((8, False), (7, True)), "out:0 holds 2 records from 0 on"),
        (((7, True),), "out:0 holds 1 record from 0 on"),
        # where a producer comes back, who wrote after it is not known
        (((8, False), (9, False), (8, False)), "out:0 holds 3 records from 0 on"),
        (((8, False), (9, False)), None),
    ],
)
def test_what_is_in_transactions_is_the_applications_even_if_others_write_there(
    writers: tuple[tuple[int, bool], ...], what: str | None
) -> None:
    made = World()
    made.log("in").write("a")
    for producer, transactional in writers:
        made.log("out").write("x", producer, transactional=transactional)
        if transactional:
            made.log("out").marker(producer, DATA)
    described = app("transactional", store=GROUP, exclusive=False)
    if what is None:
        assert plan(made, described).guarantee == "exactly-once"
    else:
        assert what in refused(made, described).what


def test_an_application_without_outputs_has_none_in_its_transaction() -> None:
    """Nothing shows that outputs were in it, and nothing was checked."""
    described = app("transactional", store=GROUP, outputs=(), base={"in:1": 0})
    found = plan(in_transaction(entry(8)), described)
    assert found.guarantee == "exactly-once"
    assert "assumed" in found.because


def test_an_empty_output_proves_nothing_of_the_commit() -> None:
    found = plan(in_transaction(entry(8)), GROUPED)
    checks = {c.where: c for c in found.checks if c.name == "outputs-in-commit"}
    assert checks["out:0"].held is True
    made = in_transaction(entry(8), entry(0, 0, 1))
    made.committers[TopicPartition("in", 1)] = 7
    found = plan(made, app("transactional", store=GROUP))
    (empty,) = [
        c for c in found.checks if c.name == "outputs-in-commit" and "out:1" in (c.where or "")
    ]
    assert (empty.held, empty.detail) == (None, "no record was looked at: it is empty")


def test_a_group_that_lost_one_of_its_offsets_is_not_one_that_lost_all() -> None:
    """Others are there: the partition was added, or never committed, and its base must be said."""
    described = app("transactional", store=GROUP, mapping={"in:0": ("out:0",), "in:1": ("out:0",)})
    error = refused(in_transaction(entry(8)), described)
    assert "the store has no entry for it, but for others" in error.what
    assert error.where == "in:1"


def test_an_offset_that_an_earlier_plan_set_at_the_base_is_as_good_as_none() -> None:
    def of(offset: int, base: dict[str, int], log_start: int = 0) -> RestartPlan:
        made = World()
        for number in range(4):
            made.log("in").write(number)
        made.log("in").log_start = log_start
        made.log("out")
        made.commit(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=offset)))
        return plan(made, app("transactional", store=GROUP, base=base))

    for offset, base, log_start, guarantee in (
        (0, {}, 0, "exactly-once"),
        (1, {}, 0, "at-least-once"),
        (1, {"in:0": 1}, 0, "exactly-once"),
        (0, {"in:0": 1}, 0, "at-least-once"),
        (1, {"in:0": 1}, 1, "exactly-once"),
        (1, {}, 1, "at-least-once"),  # what was below the log start nobody knows
    ):
        assert of(offset, base, log_start).guarantee == guarantee


def test_a_commit_that_cannot_be_read_is_no_evidence() -> None:
    def denied(observed: Observed) -> Observed:
        return replace(observed, unseen={CommitOf(*IN): "it could not be read: DENIED"})

    found = plan(in_transaction(entry(8)), GROUPED, denied)
    assert found.guarantee == "at-least-once"
    assert held(found, "commit-in-transaction") is None
    assert said(found, "commit-in-transaction") == "it could not be read: DENIED"


@pytest.mark.parametrize(
    ("shown", "guarantee", "worst"),
    [
        (OutputEvidence.MARKERS, "exactly-once", True),
        (OutputEvidence.NOTHING, "exactly-once", None),
        (OutputEvidence.LATER, "at-least-once", False),
    ],
)
def test_what_shows_outputs_in_the_commit(
    shown: OutputEvidence, guarantee: str, worst: bool | None
) -> None:
    made = in_transaction(entry(8))
    want = InCommit(*OUT, 0, 6, made.committed(IN))
    found = plan(made, GROUPED, lambda o: replace(o, answers={**o.answers, want: shown}))
    of_out = next(c for c in found.checks if (c.name, c.where) == ("outputs-in-commit", "out:0"))
    assert (found.guarantee, of_out.held) == (guarantee, worst)
    unseen = plan(made, GROUPED, lambda o: replace(o, unseen={want: "TIMED_OUT"}))
    of_out = next(c for c in unseen.checks if c.detail == "TIMED_OUT")
    assert (unseen.guarantee, of_out.held) == ("exactly-once", None)


def test_a_group_whose_offsets_are_gone() -> None:
    described = app("transactional", store=GROUP)
    error = refused(in_transaction(), described)
    assert "out:0 holds 5 records from 0 on: its offsets are gone" in error.what
    assert '[app.base]: "in:0" = OFFSET' in (error.remedy or "")
    assert "eoctl restart plan --group g --topic in:0 --to-datetime T" in (error.remedy or "")
    made = in_transaction()
    for start in (1, 6):
        made.log("out").log_start = start
        what = refused(made, described).what
        assert f"out:0 starts at {start}, and what was below it is deleted" in what


def test_an_output_that_was_emptied_is_no_beginning() -> None:
    """Compaction took the records that were committed: their offsets are missing, or a COMMIT
    marker shows that there were some. What a crash in the very first transaction left is none."""
    described = app("transactional", store=GROUP)
    made = World()
    made.log("in").write("a")
    out = made.log("out")
    out.write("x", 7, transactional=True)
    out.marker(7, ABORTED)
    assert plan(made, described).guarantee == "exactly-once"
    out.write("y", 7, transactional=True)
    out.marker(7, DATA)
    out.entries[2].kind = MISSING
    for exclusive in (True, False):
        error = refused(made, app("transactional", store=GROUP, exclusive=exclusive))
        assert "out:0 lacks 1 offset from 0 on" in error.what
    del out.entries[:3]
    assert "out:0 holds a COMMIT marker at offset 0" in refused(made, described).what


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_commit_marker_without_records_is_no_beginning(exclusive: bool) -> None:
    """A transaction that had this output in it and wrote none there was committed, with the group's
    offset in it perhaps. Nothing is missing, and what else is there is aborted."""
    described = app("transactional", store=GROUP, exclusive=exclusive)
    made = World()
    made.log("in").write("a")
    out = made.log("out")
    out.write("x", 7, transactional=True)
    out.marker(7, ABORTED)
    out.marker(7, ABORTED)
    assert plan(made, described).guarantee == "exactly-once"
    if not exclusive:
        out.write("foreign", -1)
        assert plan(made, described).guarantee == "exactly-once"
    end = out.end
    out.marker(7, DATA)
    assert f"out:0 holds a COMMIT marker at offset {end}: its" in refused(made, described).what


def test_a_base_that_is_said_is_held_against_bare_markers() -> None:
    made = World()
    made.log("in").write("a")
    out = made.log("out")
    out.marker(7, ABORTED)
    out.marker(7, DATA)
    out.marker(7, ABORTED)
    for base, guarantee in ((0, "at-least-once"), (1, "at-least-once"), (2, "exactly-once")):
        described = app("transactional", store=GROUP, base={"in:0": 0, "out:0": base})
        assert plan(made, described).guarantee == guarantee


def test_records_outside_of_transactions_are_the_applications_where_it_is_exclusive() -> None:
    """Written by a producer without an id (PID -1), which the broker does not remember."""
    made = World()
    for log in ("in", "out"):
        for number in range(3):
            made.log(log).write(number, -1)
    error = refused(made, app("transactional", store=GROUP))
    assert "out:0 holds 3 records from 0 on: its offsets are gone" in error.what
    based = {"in:0": 0}
    found = plan(made, app("transactional", store=GROUP, base=based))
    assert found.guarantee == "at-least-once"
    foreign = plan(made, app("transactional", store=GROUP, exclusive=False))
    assert foreign.guarantee == "exactly-once"
    assert foreign.because.startswith(
        f"{IF_DEAD}; nothing was committed, and the outputs hold no record of the application"
    )


def test_a_base_that_is_said_is_no_evidence_beside_outputs() -> None:
    described = app("transactional", store=GROUP, base={"in:0": 3, "in:1": 0})
    found = plan(in_transaction(), described)
    assert (found.inputs[0].restart_offset, found.guarantee) == (3, "at-least-once")
    assert held(found, "base") is None
    # the outputs from their base on are none
    based = app("transactional", store=GROUP, base={"in:0": 3, "in:1": 0, "out:0": 6})
    assert plan(in_transaction(), based).guarantee == "exactly-once"


def test_a_group_that_never_committed() -> None:
    """Aborted outputs are none; and what an earlier plan wrote there is as good as nothing."""
    described = app("transactional", store=GROUP)
    made = World()
    made.log("in").write(0)
    made.log("out").write("x", 7, transactional=True)
    made.log("out").marker(7, ABORTED)
    assert plan(made, described).guarantee == "exactly-once"
    made.commit(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=0)))
    found = plan(made, described)
    assert (found.guarantee, held(found, "commit-in-transaction")) == ("exactly-once", None)
    made.commit(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=1)))
    assert plan(made, described).guarantee == "at-least-once"
    made.commit(StoredPartition(input=StoredOffset(topic="in", partition=0, offset=0)))
    made.log("out").write("y", 7, transactional=True)
    made.log("out").marker(7, DATA)
    assert plan(made, described).guarantee == "at-least-once"


@pytest.mark.parametrize("strategy", ["commit-pair", "output-end"])
def test_two_applications_in_the_range_are_refused(strategy: str) -> None:
    def world_of(*transactional: bool) -> World:
        made = world()
        for number, of in enumerate(transactional, 8):
            for e in made.log("out").entries:
                e.transactional = transactional[0]
            made.log("out").write(str(number), number, transactional=of)
            if of:
                made.log("out").marker(number, DATA)
        return made

    two = lambda o: replace(o, owners={7: "a", 8: "b"})  # noqa: E731
    one = lambda o: replace(o, owners={7: "a", 8: "a"})  # noqa: E731
    error = refused(world_of(True), app(strategy), two)
    assert "exclusive = true, but 2 transactional ids wrote what is counted" in error.what
    assert "7 (transactional id 'a'), 8 (transactional id 'b')" in error.what
    assert plan(world_of(True), app(strategy), one).guarantee == "exactly-once"
    foreign = app(strategy, exclusive=False)
    assert held(plan(world_of(True), foreign, two), "exclusive") is None
    for owners in ({}, {8: "b"}):
        change = lambda o, owners=owners: replace(o, owners=owners)  # noqa: E731
        error = refused(world_of(False, True), app(strategy), change)
        assert "two kinds of producers wrote what is counted" in error.what


def test_transactional_waits_for_open_outputs() -> None:
    made = world(entry(8, 5))
    made.log("out").write("x", 7, transactional=True)
    assert "its end is not final" in refused(made, app("transactional", store=GROUP)).what


# changelog


def test_changelog_that_lost_its_records() -> None:
    from recovery.shared.store_tables import TopicStore

    described = app("changelog", store=TopicStore(kind="topic", topic="cl"))
    made = world()
    made.stored = '{"partitions":[]}'
    made.log("cl").write((4, 2, "s"))
    found = plan(made, described)
    assert [(s.topic, s.partition, s.end_offset) for s in found.state] == [("cl", 0, 1)]
    assert held(found, "state") is True
    assert (found.inputs[0].restart_offset, found.outputs[0].drop_first) == (4, 3)
    made.log("cl").log_start = 1
    assert "the changelog's records below 1 are gone" in refused(made, described).what


# spark-checkpoint


def spark(batch: int | None, committed: int | None) -> World:
    made = world()
    made.stored = '{"partitions":[]}'
    made.spark = Checkpoint("q", batch, committed, {IN: 2}, {IN: 6})
    return made


def test_spark() -> None:
    described = app("spark-checkpoint", store=SPARK, outputs=())
    found = plan(spark(3, 3), described)
    assert found.starting_offsets == '{"in":{"0":6}}'
    (i,) = found.inputs
    assert (i.current_offset, i.restart_offset, i.direction) == (6, 6, "none")
    assert held(found, "batch") is True
    unread = spark(3, 3)
    unread.spark = None
    with pytest.raises(IncompleteError, match="the checkpoint was not read"):
        plan(unread, described)
    error = refused(spark(3, 2), described)
    assert "batch 3 is replayed completely" in error.what
    assert "eoctl dedup" in (error.remedy or "")
    for sink in ("batch-id", "eoctl"):
        store = SPARK.model_copy(update={"sink": sink})
        found = plan(spark(3, 2), app("spark-checkpoint", store=store, outputs=()))
        assert found.starting_offsets == '{"in":{"0":2}}'
        assert found.inputs[0].restart_offset == 2
        made = spark(3, 2)
        made.log("in").log_start = 3
        assert (
            "the offsets [2, 3) are gone"
            in refused(made, app("spark-checkpoint", store=store, outputs=())).what
        )
    assert "has not planned a batch" in refused(spark(None, None), described).what
    made = spark(3, 3)
    made.log("in", 1)
    assert "batch 3 does not read it" in refused(made, described).what


def test_a_partition_that_is_new_in_sparks_batch() -> None:
    store = SPARK.model_copy(update={"sink": "eoctl"})
    made = spark(3, 2)
    made.spark = Checkpoint("q", 3, 2, {}, {IN: 6})
    error = refused(made, app("spark-checkpoint", store=store, outputs=()))
    assert "where batch 3 begins is not written" in error.what


def test_sparks_batch_must_end_in_the_log() -> None:
    store = SPARK.model_copy(update={"sink": "eoctl"})
    made = spark(3, 2)
    made.spark = Checkpoint("q", 3, 2, {IN: 2}, {IN: 9})
    error = refused(made, app("spark-checkpoint", store=store, outputs=()))
    assert "offset 9 is above the last stable offset 8" in error.what


# flink-checkpoint


def flink(
    *offsets: int, newer: tuple[int, ...] = (), unread: Mapping[TopicPartition, str] | None = None
) -> World:
    """`in` with 8 records in each of as many partitions as there are offsets; below 0: none."""
    made = World()
    for partition in range(len(offsets)):
        for number in range(8):
            made.log("in", partition).write(number)
    known = {p: o for p, o in enumerate(offsets) if o >= 0}
    stored = (StoredOffset(topic="in", partition=p, offset=o) for p, o in known.items())
    made.commit(*(StoredPartition(input=i) for i in stored))
    made.flink = FlinkFacts(4, newer, unread or {})
    return made


OF_FLINK = app("flink-checkpoint", store=FLINK, outputs=())


def test_flink() -> None:
    found = plan(flink(5, 3), OF_FLINK)
    assert [(i.partition, i.restart_offset, i.direction) for i in found.inputs] == [
        (0, 5, "none"),
        (1, 3, "none"),
    ]
    assert (found.outputs, found.store, found.starting_offsets) == ((), (), None)
    assert found.guarantee == "at-most-once"
    assert "the checkpoint promises 4 of Kafka's sink" in found.because
    assert found.because.endswith("without their state"), "one reason of all partitions"
    assert (held(found, "source"), held(found, "newest")) == (None, None)
    assert changes(found, flink(5, 3).observe()) == ()


def test_flinks_job_went_on() -> None:
    error = refused(flink(5, newer=(7, 9)), OF_FLINK)
    assert error.what == ("checkpoint 9 lies beside it: what was committed since would come twice")
    assert (error.where, error.remedy) == ("/f/chk-4", "name that one in [app.store] path")


@pytest.mark.parametrize(
    ("unread", "what"),
    [
        ({}, "its source reads other partitions, or it was added later"),
        ({("in", 1): "earliest"}, "which its source begins at earliest"),
    ],
)
def test_a_partition_of_which_flink_has_read_nothing(unread: Any, what: str) -> None:
    error = refused(flink(5, -2, unread=unread), OF_FLINK)
    assert what in error.what
    assert error.where == "in:1"
    assert error.remedy == 'say in [app.base] where it begins: "in:1" = 0'
    found = plan(flink(5, -2, unread=unread), OF_FLINK.model_copy(update={"base": {"in:1": 2}}))
    assert [i.restart_offset for i in found.inputs] == [5, 2]
    assert held(found, "base") is None


def test_flinks_offsets_must_be_in_the_log() -> None:
    assert "offset 9 is above the last stable offset 8" in refused(flink(9), OF_FLINK).what
    made = flink(5)
    made.log("in").log_start = 6
    assert refused(made, OF_FLINK).where == "in:0"
    made = flink(5)
    made.flink = None
    with pytest.raises(IncompleteError, match="the checkpoint was not read"):
        plan(made, OF_FLINK)


# merge-log

MERGING = app("merge-log", inputs=("left", "right"), merge=MergeLog(topic="m", format="json"))


def merging(order: str, *, merge: int = 0, left: int = 0, right: int = 0, o: int = 0) -> World:
    """`order`: which source each entry of the log names, l or r, in rising offsets."""
    made, at = World(), {"l": 0, "r": 0}
    for topic in ("left", "right"):
        for number in range(6):
            made.log(topic).write(number)
    for letter in order:
        made.log("m").write((({"l": "left", "r": "right"}[letter], 0), at[letter]))
        at[letter] += 1
    for number in range(4):
        made.log("out").write(number, 7)
    made.commit(
        *(
            StoredPartition(
                input=StoredOffset(topic=topic, partition=0, offset=offset),
                output=(StoredOutput(topic="out", partition=0, offset=o),),
                merge=merge,
            )
            for topic, offset in (("left", left), ("right", right))
        )
    )
    return made


def test_merge_log_restarts_at_the_merge_offset() -> None:
    found = plan(merging("llrlr", merge=2, left=2, right=0, o=1), MERGING)
    assert [(i.topic, i.restart_offset) for i in found.inputs] == [
        ("left", 2),
        ("right", 0),
        ("m", 2),
    ]
    assert [i.records for i in found.inputs] == [0, 0, 0]
    assert [(o.start, o.drop_first, o.fed_by) for o in found.outputs] == [
        (1, 3, (("left", 0), ("right", 0)))
    ]


def test_a_merge_log_without_a_commit_leaves_the_store_as_it_is() -> None:
    """The state that belongs to a first commit is the application's alone, as of a checkpoint."""
    made = merging("llrlr")
    assert plan(made, MERGING).store == made.entries()
    made.stored = '{"partitions": []}'
    found = plan(made, MERGING)
    assert [(i.topic, i.restart_offset) for i in found.inputs] == [
        ("left", 0),
        ("right", 0),
        ("m", 0),
    ]
    assert [o.drop_first for o in found.outputs] == [4]
    assert found.store == ()


def test_a_merge_log_that_does_not_exist() -> None:
    made = merging("ll")
    del made.logs[TopicPartition("m", 0)]
    error = refused(made, MERGING)
    assert "no such topic" in error.what
    assert error.where == "m"


def test_merge_logs_of_other_tasks() -> None:
    made = merging("ll")
    for topic in ("left", "right", "out", "m"):
        made.log(topic, 1)
    base = dict.fromkeys(("left:1", "right:1", "out:1"), 0)
    described = MERGING.model_copy(update={"base": base})
    assert plan(made, described).outputs[1].fed_by == (("left", 1), ("right", 1))
    made.log("m", 1).write((("left", 0), 0))
    assert refused(made, described).where == "m:1"
    crossed = described.model_copy(update={"mapping": {"left:0": ("out:0", "out:1")}})
    assert "feeds the output partitions [0, 1]" in refused(made, crossed).what
    entries = [e.model_copy(update={"merge": None}) for e in made.entries()]
    made.commit(*entries)
    assert "the commit holds no merge offset" in refused(made, MERGING).what
    made.stored = '{"partitions":[]}'
    made.log("m").log_start = 1
    assert "nothing was committed yet, and the merge log starts at 1" in refused(made, MERGING).what


@pytest.mark.parametrize("policy", ["delete", "compact", None])
@pytest.mark.parametrize("lost", [0, 1, 4])
def test_a_merge_log_with_a_hole(policy: str | None, lost: int) -> None:
    """Four outputs of l0 r0 l2 r1 would be taken for those of other inputs."""
    made = merging("llrlr")
    made.log("m").policy = policy
    made.log("m").entries[lost].kind = MISSING
    error = refused(made, MERGING)
    assert "[0, 5) lacks 1 offset (compacted or deleted)" in error.what
    assert error.where == "m:0"


def test_a_merge_log_with_markers_and_aborted_entries_is_whole() -> None:
    made = merging("ll")
    made.log("m").write((("right", 0), 3), 9, transactional=True)
    made.log("m").marker(9, ABORTED)
    made.log("m").write((("right", 0), 0))
    found = plan(made, MERGING)
    assert (found.inputs[-1].restart_offset, found.outputs[0].drop_first) == (0, 4)


def test_merge_logs_that_do_not_fit() -> None:
    made = merging("llrlr", merge=2, left=3)
    assert "names its offsets backwards: the commit is at 3" in refused(made, MERGING).what
    made = merging("llrlr", merge=2, left=1)
    assert "the merge log lacks 1 record of [1, 3)" in refused(made, MERGING).what
    made = merging("lrlr")
    made.log("m").entries[2].value = (("left", 0), 2)  # l1 was never written
    assert "the merge log lacks 1 record of [0, 3)" in refused(made, MERGING).what
    made = merging("lrlr")
    made.log("left").entries[1].kind = ABORTED  # what is named cannot be read
    assert "names 2 records of [0, 2), the input holds 1 that" in refused(made, MERGING).what
    made = merging("llrlr", merge=6)
    assert "the commit is at 6, the merge log is [0, 5)" in refused(made, MERGING).what
    made = merging("llrlr")
    made.log("m").log_start = 1
    assert "the commit is at 0, the merge log is [1, 5)" in refused(made, MERGING).what
    made = merging("llllllll")
    assert "names offset 7, the log ends at 6" in refused(made, MERGING).what
    made = merging("lllllll")  # the end is the next offset: there is no record at it
    assert "names offset 6, the log ends at 6" in refused(made, MERGING).what
    for foreign in (TopicPartition("other", 0), TopicPartition("left", 7)):
        made = merging("llr")
        made.log("m").write((foreign, 0))
        assert f"name {foreign}, which does not feed" in refused(made, MERGING).what
    made = merging("llr")
    made.log("m").write((("left", 0), 0))
    assert "names its offsets backwards" in refused(made, MERGING).what
    made = merging("llrlr")
    made.commit(
        StoredPartition(
            input=StoredOffset(topic="right", partition=0, offset=0),
            output=(StoredOutput(topic="out", partition=0, offset=0),),
            merge=1,
        )
    )
    assert "committed at 0 of the merge log, right:0 at 1" in refused(made, MERGING).what


# What is asked, and what could not be answered


def test_a_question_without_an_answer() -> None:
    want = Count("out", 0, 2, 5, producers=True)
    observed = replace(world().observe(), unseen={want: "broker 3 did not answer"})
    assert want not in wants(app(), observed)
    with pytest.raises(IncompleteError, match="out:0: broker 3 did not answer"):
        decide(app(), observed)


def test_deciding_too_early() -> None:
    with pytest.raises(IncompleteError, match="not looked at"):
        decide(app(), world().observe())


def test_a_partition_that_could_not_be_seen() -> None:
    for change in (
        lambda o: replace(o, logs={OUT: o.logs[OUT]}),
        partial(with_reads, partition=IN, reads=()),
    ):
        with pytest.raises(IncompleteError, match="in:0: its offsets could not be read"):
            plan(world(), change=change)


def test_all_partitions_are_asked_at_once() -> None:
    made = World()
    for partition in range(50):
        made.log("in", partition).write("x")
        made.log("out", partition).write("y", 7)
    made.commit(*(entry(0, 0, p) for p in range(50)))
    questions = wants(app(), made.observe())
    assert {w.partition for w in questions if isinstance(w, Count)} == set(range(50))
    assert not any(isinstance(w, TimeAt) for w in questions)
    found = plan(made)
    assert [o.drop_first for o in found.outputs] == [1] * 50
    (check,) = (c for c in found.checks if c.name == "range-whole")
    assert check.where == "out:0, out:1, out:2 and 47 more"


def test_rounds_do_not_grow_with_the_partitions() -> None:
    """Everything that may be asked at once is: three rounds for one partition and for thirty."""
    made = World()
    for partition in range(30):
        made.log("in", partition).write("x")
        made.log("in", partition).policy = "compact"
        made.log("out", partition).write("y", 7)
    made.commit(*(entry(0, 0, p, leader_epoch=0) for p in range(30)))
    # leader epochs and outputs' ranges, then the inputs' holes
    assert rounds(made, app()) == [60, 30]
    assert plan(made).guarantee == "exactly-once"


def rounds(made: World, application: App) -> list[int]:
    """How many questions each round asks."""
    answers: dict[Question[Any], Any] = {}
    found = []
    while questions := wants(application, made.observe(answers)):
        found.append(len(questions))
        for want in questions:
            answers[want] = made.answer(want)
    return found


def test_a_later_epoch_of_the_stored_producer_begins_at_0() -> None:
    for first, fits in ((0, True), (1, False)):
        made = World()
        for number in range(8):
            made.log("in").write(number)
        for number in range(2):
            made.log("out").write(number, 7)
        made.commit(entry(**STORED))
        made.log("out").entries.append(Entry(DATA, 2, 7, 1, first, False))
        if fits:
            assert held(plan(made), "stored-producer") is None
        else:
            assert "(epoch, sequence) (1, 1)" in refused(made).what


def test_a_step_from_the_logs_very_end_is_told_in_time() -> None:
    """The store stands at the end: which time that was is asked of the broker, too."""
    log = answered(world(), app(), lambda o: o).log(IN)
    assert log.high_watermark == 8
    seen = Observed(
        None,
        {},
        {IN: log},
        answers={
            Count("in", 0, 4, 8): Counted(Counts(data=4), None),
            Count("in", 0, 0, 4): Counted(Counts(data=4), None),
            TimeAt("in", 0, 8): 77,
            TimeAt("in", 0, 0): 11,
            TimeAt("in", 0, 4): 44,
        },
    )
    found = moved(8, 4, log, "read_committed", seen)
    assert (found.direction, found.records) == ("rewind", 4)
    assert (found.from_time, found.to_time) == (77, 44)
    first = moved(0, 4, log, "read_committed", seen)
    assert (first.direction, first.records, first.from_time) == ("skip", 4, 11)
    # beyond the log's end there is nothing to count, and no time
    beyond = moved(9, 4, log, "read_committed", seen)
    assert (beyond.direction, beyond.records, beyond.from_time) == ("rewind", None, None)


def test_who_reads_uncommitted_sees_aborted_and_open_records() -> None:
    want = Count("in", 0, 0, 12)
    counts = Counts(data=4, aborted=2, control=2, open=3, missing=1)
    observed = Observed(None, {}, {}, answers={want: Counted(counts, None)})
    assert visible(want, "read_committed", observed) == 4
    assert visible(want, "read_uncommitted", observed) == 9


def test_only_committed_records_are_walked_unless_asked() -> None:
    assert not Walk("t", 0, 0, 1).uncommitted
