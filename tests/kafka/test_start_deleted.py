"""Open transactions whose first records DeleteRecords took: judged by what is left."""

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.kafka.command import eoctl
from tests.kafka.diagnosing import judged
from tests.kafka.remedying import abort_words, held, read_committed

QUICKLY = ("--sample-interval", "0.3s")


def delete(lab: Lab, t: GroundTruth, before: int) -> None:
    """Delete the records below an offset; -1: all but the last one, which is another's."""
    if before < 0:
        [found] = judged(lab, t.topic).judged
        before = (found.partition.high_watermark or 0) - 1
    partition = TopicPartition(t.topic, t.partition, before)
    admin = AdminClient(lab.client_properties())
    admin.delete_records([partition])[partition].result(20)


def rule(lab: Lab, t: GroundTruth) -> str:
    [found] = [j for j in judged(lab, t.topic).judged if j.about.producer_id == t.producer_id]
    return found.verdict.rule


def test_an_owned_one_is_judged_by_its_owner(lab1: Lab) -> None:
    for every in (False, True):
        (truth,) = break_(lab1, "open", hold=False)
        assert truth.start_offset is not None
        delete(lab1, truth, -1 if every else truth.start_offset + 1)
        assert rule(lab1, truth) == "within-limits"
        page = eoctl("why", truth.topic, *QUICKLY, lab=lab1)
        assert page.status == 0, page.stderr
        assert "were deleted" in page.stdout
        name = truth.transactional_id or ""
        act = ("--owner-is-gone", "--execute", "--yes", *QUICKLY)
        fenced = eoctl("txn", "fence", name, *act, lab=lab1)
        assert fenced.status == 0, fenced.stderr
        assert not held(lab1, truth)


def test_an_orphan_of_which_a_batch_is_left_is_an_orphan(lab1: Lab) -> None:
    (truth,) = break_(lab1, "orphan")
    assert truth.start_offset is not None
    delete(lab1, truth, truth.start_offset + 1)
    assert rule(lab1, truth) == "nobody-owns-it"
    done = eoctl(*abort_words(lab1, truth, "--execute", "--yes"))
    assert done.status == 0, done.stderr
    assert not held(lab1, truth)


def test_one_of_which_nothing_is_left_has_a_way_out(lab1: Lab) -> None:
    """It holds what comes after it, and no record tells whose it was."""
    (truth,) = break_(lab1, "orphan")
    delete(lab1, truth, -1)
    assert rule(lab1, truth) == "start-deleted"
    count = eoctl("offsets", "count", truth.topic, "earliest", "lso", lab=lab1)
    assert count.status == 3
    assert "is below the log start" in count.stderr + count.stdout
    assert "backwards" not in count.stderr + count.stdout
    refused = eoctl(*abort_words(lab1, truth))
    assert refused.status in (3, 4)
    words = abort_words(lab1, truth, "--outcome", "abort", "--without-proof", "--execute", "--yes")
    words[1] = "resolve"
    done = eoctl(*words)
    assert done.status == 0, done.stderr
    assert not held(lab1, truth)
    assert read_committed(lab1, truth.topic, truth.partition) == [b"value 2 of behind"]
