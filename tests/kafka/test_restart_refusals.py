"""What `restart plan` refuses, on a real broker: one case for each rule that looks at the store.

Refusals where brokers die, retention works or others write at the same time: test_restart.py and
test_restart_brokers.py. Everything here is refused with exit 4 and the place in one sentence.
"""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eoctl.lab.client import Client
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import Ran, eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import Scene, producing, until, write
from tests.kafka.planting import FORGET_SECONDS, FORGETFUL, flip_a_bit, numbered, send
from tests.kafka.restarting import visible

FILE = 'kind = "file"\npath = "offsets.json"'


@pytest.fixture(scope="module")
def shared(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Input of 20 records, 12 copies of them; plans change nothing, so all cases share it."""
    from tests.kafka.conftest import topic

    make: Any = topic.__wrapped__  # type: ignore[attr-defined]
    return Scene.make(lab1, make(), tmp_path_factory.mktemp("refused"))


def stored(scene: Scene, *entries: dict[str, Any]) -> None:
    (scene.folder / "offsets.json").write_text(json.dumps({"partitions": list(entries)}))


def entry(scene: Scene, offset: int = 7, output: Any = 7, **beside: Any) -> dict[str, Any]:
    """output: an offset, a whole output, or None; beside: keys of the input, or `merge`."""
    found: dict[str, Any] = {key: beside.pop(key) for key in ("merge", "state") if key in beside}
    found["input"] = {"topic": scene.input, "partition": 0, "offset": offset} | beside
    if isinstance(output, int):
        output = {"topic": scene.output, "partition": 0, "offset": output}
    if output is not None:
        found["output"] = output
    return found


def producer_of(scene: Scene) -> int:
    """Who wrote the copies, as the broker tells."""
    words = ("producers", f"{scene.output}:0", "-o", "json")
    [row] = eoctl(*words, lab=scene.lab).rows
    found: int = row["producer_id"]
    return found


def another_cluster(scene: Scene) -> str:
    stored(scene, entry(scene, cluster_id="AAAAAAAAAAAAAAAAAAAAAA"))
    return "was stored for cluster AAAAAAAAAAAAAAAAAAAAAA, this is "


def another_topic_of_the_output(scene: Scene) -> str:
    output = {"topic": scene.output, "partition": 0, "offset": 7, "topic_id": "A" * 22}
    stored(scene, entry(scene, output=output))
    return f"{scene.output}:0: the topic was deleted and created again"


def a_partition_that_is_not_there(scene: Scene) -> str:
    stored(scene, entry(scene), entry(scene) | entry(scene, partition=5))
    return f"the store holds a position of {scene.input}:5, not a partition of the inputs"


def no_output_offset(scene: Scene) -> str:
    stored(scene, entry(scene, output=None))
    return f"the commit names no output offset of {scene.output}:0"


def another_output(scene: Scene) -> str:
    both = [
        {"topic": scene.output, "partition": 0, "offset": 7},
        {"topic": scene.input, "partition": 0, "offset": 7},
    ]
    stored(scene, entry(scene, output=both))
    return f"the commit names the output {scene.input}:0, the application file does not"


def a_producer_of_another_moment(scene: Scene) -> str:
    """The outputs after 7 go on with sequence 7; the store says that 3 was the last."""
    output = {"topic": scene.output, "partition": 0, "offset": 7}
    of = {"producer_id": producer_of(scene), "producer_epoch": 0, "last_sequence": 3}
    stored(scene, entry(scene, output=output | of))
    return "goes on at (epoch, sequence) (0, 7) after 7, the store holds (0, 3)"


def a_producer_that_was_further(scene: Scene) -> str:
    """Nothing came after 12; the store knows of sequence 40, the broker of 11: records are lost."""
    output = {"topic": scene.output, "partition": 0, "offset": 12}
    of = {"producer_id": producer_of(scene), "producer_epoch": 0, "last_sequence": 40}
    stored(scene, entry(scene, 12, output | of))
    return "a stale state, records were lost"


def no_state(scene: Scene) -> str:
    stored(scene, entry(scene))
    scene.describe(strategy="checkpoint", store=FILE)
    return "the commit holds no state"


def an_output_that_does_not_exist(scene: Scene) -> str:
    mapping = f'[app.mapping]\n"{scene.input}:0" = ["{scene.output}:3"]'
    scene.describe(strategy="commit-pair", store=FILE, more=mapping)
    return f"it feeds {scene.output}:3, which does not exist"


def a_topic_that_does_not_exist(scene: Scene) -> str:
    path = Path(scene.describe(strategy="commit-pair", store=FILE))
    path.write_text(path.read_text().replace(f'["{scene.output}"]', '["nowhere"]'))
    return "nowhere: no such topic, or no permission to see it"


def inputs_of_two_moments(scene: Scene) -> str:
    """One output fed by two inputs, each committed at another offset of it."""
    path = Path(scene.describe(strategy="commit-pair", store=FILE))
    both = f'inputs = ["{scene.input}", "{scene.output}"]'
    text = path.read_text().replace(f'inputs = ["{scene.input}"]', both)
    path.write_text(text.replace(f'outputs = ["{scene.output}"]', f'outputs = ["{target(scene)}"]'))
    at = {"topic": target(scene), "partition": 0}
    stored(
        scene,
        entry(scene, output=at | {"offset": 1}),
        entry(scene, output=at | {"offset": 2}, topic=scene.output),
    )
    return "which outputs come again is not known"


def several_inputs_in_no_order(scene: Scene) -> str:
    """Both at one moment, but what came after it was of both, in no recorded order."""
    inputs_of_two_moments(scene)
    at = {"topic": target(scene), "partition": 0, "offset": 1}
    stored(scene, entry(scene, output=at), entry(scene, output=at, topic=scene.output))
    return "2 outputs after the commit may be of several inputs ("


def target(scene: Scene) -> str:
    """A third topic, with three records."""
    return f"{scene.output}-both"


def a_batch_whose_sink_takes_it_twice(scene: Scene) -> str:
    """offsets/1 without commits/1, and the sink is not said to drop what it has."""
    root = scene.folder / "checkpoint"
    for name, text in {
        "metadata": '{"id":"4e0e5f3c-2f8c-4f0a-9a39-1f2b7a0d6e11"}',
        "sources/0/0": "\0v1\n" + json.dumps({scene.input: {"0": 0}}),
        "offsets/0": "v1\n{}\n" + json.dumps({scene.input: {"0": 5}}),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/1": "v1\n{}\n" + json.dumps({scene.input: {"0": 9}}),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    path = Path(
        scene.describe(
            strategy="spark-checkpoint",
            store='kind = "spark-checkpoint"\npath = "checkpoint"\nsink = "other"',
        )
    )
    path.write_text(path.read_text().replace(f'["{scene.output}"]', "[]"))
    return "batch 1 is replayed completely, and this sink drops no repeats"


def merging(scene: Scene, *named: int, at: int | None = 0) -> None:
    """A merge log that names these offsets of the input; the commit is at `at` of it."""
    log = f"m-{uuid.uuid4().hex[:8]}"
    make(scene.lab, log)
    values = [json.dumps({"topic": scene.input, "partition": 0, "offset": o}) for o in named]
    write(producing(scene.lab), log, values)
    more = {} if at is None else {"merge": at}
    stored(scene, entry(scene, **more))
    table = f'[app.merge]\ntopic = "{log}"\nformat = "json"'
    scene.describe(strategy="merge-log", store=FILE, more=table)


def a_merge_log_with_a_hole(scene: Scene) -> str:
    merging(scene, 7, 8, 10, 11)
    return "the merge log lacks 1 record of [7, 12)"


def a_merge_log_that_goes_back(scene: Scene) -> str:
    merging(scene, 7, 8, 8, 9)
    return "names its offsets backwards"


def a_merge_log_beyond_its_input(scene: Scene) -> str:
    merging(scene, 7, 8, 20)
    return "the merge log names offset 20, the log ends at 20"


def a_commit_without_merge_offset(scene: Scene) -> str:
    merging(scene, 7, at=None)
    return "the commit holds no merge offset"


def a_merge_log_that_lost_its_end(scene: Scene) -> str:
    merging(scene, 7, 8, at=3)
    return "the order after the commit is lost"


CASES: list[Callable[[Scene], str]] = [
    another_cluster,
    another_topic_of_the_output,
    a_partition_that_is_not_there,
    no_output_offset,
    another_output,
    a_producer_of_another_moment,
    a_producer_that_was_further,
    no_state,
    an_output_that_does_not_exist,
    a_topic_that_does_not_exist,
    inputs_of_two_moments,
    several_inputs_in_no_order,
    a_batch_whose_sink_takes_it_twice,
    a_merge_log_with_a_hole,
    a_merge_log_that_goes_back,
    a_merge_log_beyond_its_input,
    a_commit_without_merge_offset,
    a_merge_log_that_lost_its_end,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_refused(shared: Scene, case: Callable[[Scene], str]) -> None:
    stored(shared, entry(shared))
    shared.describe(strategy="commit-pair", store=FILE)
    if case in (inputs_of_two_moments, several_inputs_in_no_order):
        once(shared)
    said = case(shared)
    refused = shared.plan()
    assert (refused.status, said in refused.stderr) == (4, True), refused


def test_the_store_of_all_cases_is_planned(shared: Scene) -> None:
    """Else each of them could be refused for another reason."""
    stored(shared, entry(shared))
    shared.describe(strategy="commit-pair", store=FILE)
    planned = shared.plan("-o", "json")
    assert planned.status == 0, planned.stderr
    [row] = planned.rows
    assert [(o["from"], o["drop_first"]) for o in row["outputs"]] == [(7, 5)]
    [exclusive] = [c for c in row["checks"] if c["name"] == "exclusive"]
    assert exclusive["held"] is None
    assert f"written by producer {producer_of(shared)} alone" in exclusive["detail"]
    merging(shared, 7, 8, 9, 10, 11)
    assert shared.plan().status == 0


def once(scene: Scene) -> None:
    from confluent_kafka.admin import AdminClient

    if (
        target(scene)
        not in AdminClient(scene.lab.client_properties()).list_topics(timeout=10).topics
    ):
        make(scene.lab, target(scene))
        write(producing(scene.lab), target(scene), ["a", "b", "c"])


def make(lab: Lab, name: str, config: dict[str, str] | None = None) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    new = NewTopic(name, 1, 1, config=config or {})
    admin = AdminClient(lab.client_properties())
    admin.create_topics([new], operation_timeout=10)[name].result(20)


# -- refused because of what happens to the logs ---------------------------------------------------


@pytest.fixture
def scene(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> Scene:
    return Scene.make(lab1, topic, tmp_path)


def test_outputs_that_retention_took(scene: Scene) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    scene.pair(7, 7)
    admin = AdminClient(scene.lab.client_properties())
    partition = TopicPartition(scene.output, 0, 9)
    admin.delete_records([partition])[partition].result(20)
    refused = scene.plan()
    assert (refused.status, "the outputs [7, 9) are gone" in refused.stderr) == (4, True), refused


def test_outputs_that_cannot_be_read(scene: Scene) -> None:
    write(scene.producer, scene.output, ["to be hit"])
    scene.pair(7, 7)
    flip_a_bit(scene.lab, scene.output, b"to be hit")
    refused = scene.plan()
    assert (refused.status, f"{scene.output}:0" in refused.text) == (3, True), refused
    assert "it could not be counted: " in refused.text
    assert "CRC" in refused.text


def test_a_restart_above_the_last_stable_offset(scene: Scene) -> None:
    """An application that read_uncommitted may start there; one that read_committed may not."""
    owner = producing(scene.lab, **{"transactional.id": scene.group})
    owner.init_transactions(30)
    owner.begin_transaction()
    write(owner, scene.input, ["open", "open"])
    path = Path(scene.pair(21, 12))
    refused = scene.plan()
    assert refused.status == 4
    assert "the restart offset 21 is above the last stable offset 20" in refused.stderr
    assert "see `eoctl why`" in refused.stderr
    text = path.read_text()
    path.write_text(text.replace("[app.store]", 'isolation = "read_uncommitted"\n[app.store]'))
    assert scene.plan().status == 0
    owner.abort_transaction(30)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Again and again as long as the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def watched(scene: Scene) -> Ran:
    return scene("plan", str(scene.folder / "app.toml"), "--pause", "3s")


def test_a_store_that_is_written_while_it_is_watched(scene: Scene) -> None:
    """A consumer that assigns itself is no member: it shows by its commits alone."""
    scene.commits(5)
    scene.describe()
    offsets = count(6)
    with meanwhile(lambda: scene.commits(next(offsets))):
        refused = watched(scene)
    assert refused.status == 4
    assert "it was written while it was watched" in refused.stderr


def test_an_output_that_grows_while_it_is_watched(scene: Scene) -> None:
    scene.pair(7, 7)
    with meanwhile(lambda: write(scene.producer, scene.output, ["still alive"])):
        refused = watched(scene)
    assert refused.status == 4
    assert "its end is not final: " in refused.stderr


def test_verify_finds_a_commit_that_a_transaction_holds(scene: Scene) -> None:
    from confluent_kafka import Consumer, TopicPartition

    scene.commits(5)
    scene.describe()
    assert scene.plan().status == 0
    assert scene.apply().status == 0
    reader = Consumer(scene.lab.client_properties() | {"group.id": scene.group})
    owner = producing(scene.lab, **{"transactional.id": f"{scene.group}-id"})
    owner.init_transactions(30)
    owner.begin_transaction()
    at = [TopicPartition(scene.input, 0, 3)]
    owner.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 30)
    found = scene.verify()
    assert (found.status, [r["finding"] for r in found.rows]) == (1, ["pending"]), found
    owner.commit_transaction(30)
    reader.close()
    assert [r["finding"] for r in scene.verify().rows] == ["overwritten"]


# -- logs as only a broker makes them that forgets producers and compacts at once ------------------

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.001",
}


@pytest.fixture(scope="module")
def forgetful(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    settings = FORGETFUL | {"log.cleaner.backoff.ms": "100"}
    return start_lab(LabSpec(name="compacts", settings=settings))


@pytest.mark.long
def test_a_gap_in_the_sequences(forgetful: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """A producer that the broker forgot goes on with a number that does not follow."""
    scene = Scene.make(forgetful, topic, tmp_path)
    scene.pair(7, 12)

    async def plant() -> None:
        async with Client.to(forgetful.bootstrap_servers) as client:
            await send(client, scene.output, 0, numbered(3, 9000, 0, 0))
            await asyncio.sleep(FORGET_SECONDS)
            await send(client, scene.output, 0, numbered(3, 9000, 0, 5))

    asyncio.run(plant())
    refused = scene.plan()
    assert refused.status == 4
    assert "the sequence of producer 9000 has a gap at 15" in refused.stderr
    assert "(0, 3) expected, (0, 5) found" in refused.stderr


@pytest.mark.long
@pytest.mark.parametrize("which", ["input", "output"])
def test_records_that_compaction_took(
    forgetful: Lab, topic: MakeTopic, tmp_path: Path, which: str
) -> None:
    """Of the outputs to count, or of the inputs that must come again while outputs are dropped."""
    scene = Scene.make(forgetful, topic, tmp_path)
    thin = topic(forgetful, config=COMPACTED)
    one = producing(forgetful)
    for number in range(12):
        one.produce(thin, str(number), "the same key")
    assert one.flush(30) == 0
    time.sleep(0.6)
    one.produce(thin, "rolls the segment", "roll")
    assert one.flush(30) == 0
    until(lambda: left(forgetful, thin) < 12, 90)
    setattr(scene, which, thin)
    scene.pair(7, 7)
    refused = scene.plan()
    assert refused.status == 4
    said = {
        "output": "(compacted or deleted): how many outputs there were",
        "input": "compacted away: the same outputs would not come again",
    }[which]
    assert said in refused.stderr


def left(lab: Lab, name: str) -> int:
    """How many records a plain consumer gets."""
    return len(visible(lab, name, 0))
