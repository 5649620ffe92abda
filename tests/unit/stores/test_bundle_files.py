"""A bundle file: what goes in comes out and is judged the same; whatever is damaged is refused."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eoctl.kafka.connection.cluster import PartitionMetadata, TopicMetadata
from eoctl.stores import bundle_files
from eoctl.stores.bundle_files import (
    Bundle,
    Origin,
    SeenHistory,
    SeenId,
    facts_of,
    judged_again,
    listed,
    without_verdicts,
)
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.verdicts import judge
from recovery.diagnose.waiting_records import Waiting
from recovery.errors import Exit, UsageError
from recovery.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    GroupOffsetFacts,
    Missing,
    ProducerFacts,
    TopicPartition,
    Transactions,
)
from recovery.formats.reader import UnknownVersion
from recovery.inspect.history import StateLog
from recovery.inspect.observation import Settings
from recovery.values import replace
from tests.share import share
from tests.unit.check_facts import NOW, closed, partition
from tests.unit.inspect.test_id_verdicts import look as id_look
from tests.unit.inspect.test_id_verdicts import record as id_record
from tests.unit.remedy.test_verdicts_model import EPOCHS, EYES, OPS, VERSIONS, play, world
from tests.unit.transaction_model import Eyes, World, history, sample, start_batch

RULES = Settings()


def diagnosed(w: World, eyes: Eyes, *, twice: bool) -> Diagnosis:
    """All that is open in a model world, looked at and judged."""
    looks = {}
    for about in w.open_transactions():
        looks[about] = sample(w, about.topic_partition, eyes, RULES)
    judged = []
    w.tick(5000)
    for about, first in looks.items():
        second = sample(w, about.topic_partition, eyes, RULES) if twice else None
        start = start_batch(w, about, eyes)
        past = history(w, about, start, eyes) if start else None
        verdict = judge(about, start, first, second, past, RULES)
        if verdict is not None:
            judged.append(Judged(about, start, first, second, past, verdict))
    return Diagnosis("c", NOW, 3, 2, 1, 1, (), tuple(judged), Transactions(), (), 5.0, RULES)


def bundle(d: Diagnosis) -> Bundle:
    """A bundle with one of everything, and this diagnosis."""
    gone = Missing("broker", "TIMED_OUT", "no answer", broker=3)
    facts = Facts(
        "c",
        NOW,
        scanned=2,
        transaction_version=2,
        partitions=(partition("t", 5), partition("t", None, 1)),
        producers={
            TopicPartition("t", 0): (ProducerFacts("t", 0, 7, 1, None, NOW, None, 100),),
            TopicPartition("t", 1): (),
        },
        transactions=Transactions(),
        missing=(gone,),
    )
    rest, opened, looks = without_verdicts(d)
    offset = GroupOffsetFacts("g", "t", 0, 5, pending=True)
    return Bundle(
        eoctl_version="0",
        created_at=NOW,
        origin=Origin("prod", "b1:9092", ("--context", "prod"), True, False, (".*",), ()),
        cluster_id="c",
        brokers=(BrokerFacts(1, "b1", 9092),),
        topics=(
            TopicMetadata("t", "id", False, (PartitionMetadata("t", 0, 1, 0, (1,), None),), None),
        ),
        offsets=listed(facts),
        producers=listed(facts),
        transactions=Transactions(missing=(gone,)),
        diagnosis=rest,
        open_transactions=opened,
        looks=looks,
        ids=tuple(SeenId(j.first, j.second, j.record) for j in d.ids),
        groups=(GroupFacts("g", "Stable", members=(("c", "h"),), offsets=(offset,)),),
        history=SeenHistory(50, (), (), everything=False, ids=frozenset({"a"})),
        waiting=(("t", 0, Waiting(5, 1, 1, 1, None, True)), ("t", 1, None)),
        topic_configs={"t": {"cleanup.policy": "delete", "retention.ms": None}},
    )


def empty() -> Diagnosis:
    return Diagnosis("c", NOW, 3, 2, 1, 1, (), (), Transactions(), ())


@given(VERSIONS, EPOCHS, OPS, EYES, st.booleans())
@settings(
    max_examples=share(1000, 60),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_verdict_is_judged_the_same_from_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    versions: tuple[int, int, int],
    epoch: int,
    ops: list[tuple[str, int, int]],
    eyes: Eyes,
    twice: bool,
) -> None:
    w = world(versions, epoch, 0, 0, 0)
    play(w, ops)
    d = diagnosed(w, eyes, twice=twice)
    path = tmp_path_factory.mktemp("bundle") / "b"
    bundle_files.write(bundle(d), path)
    found, _ = bundle_files.read(path)
    assert judged_again(found) == replace(
        d, settings=replace(RULES, two_phase_patterns=tuple(RULES.two_phase_patterns))
    )


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    made = bundle(empty())
    checksum = bundle_files.write(made, tmp_path / "b")
    found, said = bundle_files.read(tmp_path / "b")
    assert said == checksum
    assert facts_of(found.offsets) == facts_of(made.offsets)
    assert found.missing == made.missing
    patterns = replace(found.diagnosis.settings, two_phase_patterns=RULES.two_phase_patterns)
    assert replace(found, diagnosis=replace(found.diagnosis, settings=patterns)) == made


def test_looks_are_shared(tmp_path: Path) -> None:
    """A hundred open transactions of one look hold its coordinators once."""
    w = World()
    for number in range(30):
        w.fresh(TopicPartition("t", number % 3))
    common = sample(w, TopicPartition("t", 0), Eyes(), RULES)
    d = diagnosed(w, Eyes(), twice=False)
    same = tuple(replace(j, first=common) for j in d.judged)
    _, opened, looks = without_verdicts(replace(d, judged=same))
    assert len(opened) == len(same) >= 3
    assert looks == (common.transactions,)


def test_history_survives(tmp_path: Path) -> None:
    (record,) = closed("orders", NOW - 5).latest
    unknown = replace(record, offset=6, value=UnknownVersion(9))
    forgotten = replace(record, offset=7, value=None)
    logs = (
        StateLog(0, (record, unknown, forgotten), 3, end=8),
        StateLog(1, (), 0, error="TIMED_OUT", former=(StateLog(1, (record,), 3),), cut_epoch=2),
    )
    made = bundle(empty())
    kept = replace(made.history, logs=logs, everything=True)
    bundle_files.write(replace(made, history=kept), tmp_path / "b")
    assert bundle_files.read(tmp_path / "b")[0].history == kept


def test_only_its_owner_may_read_it_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "b"
    bundle_files.write(bundle(empty()), path)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        bundle_files.write(bundle(empty()), path)
    assert path.read_bytes() == before


def refused(path: Path) -> str:
    """The one sentence with which a file is refused."""
    with pytest.raises(UsageError) as error:
        bundle_files.read(path)
    assert error.value.exit_status is Exit.USAGE
    sentence = error.value.sentence
    assert "\n" not in sentence
    assert str(path) in sentence
    return sentence


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_cut_or_changed_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("bundle") / "b"
    made = bundle(empty())
    bundle_files.write(made, path)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:at])
    refused(path)
    # bytes 3 to 9 of gzip's header: flags, time, system; what they say is not content
    # and the last byte before its checksum may end with bits that nobody reads
    unread = len(whole) - 9
    at = data.draw(st.integers(10, len(whole) - 1).filter(lambda n: n != unread))
    bit = 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    refused(path)


def test_content_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b"
    bundle_files.write(bundle(empty()), path)
    header, content = gzip.decompress(path.read_bytes()).split(b"\n", 1)
    path.write_bytes(gzip.compress(header + b"\n" + content.replace(b'"prod"', b'"test"')))
    assert "its checksum is wrong" in refused(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "two lines"),
        (b"PK\x03\x04", "not a bundle"),
        (gzip.compress(b"hello", mtime=0), "two lines"),
        (gzip.compress(b"hello\nworld\n", mtime=0), "no header"),
        (gzip.compress(b"[1]\nworld\n", mtime=0), "no header"),
        (
            gzip.compress(b'{"schema": "eoctl.bundle/v2", "sha256": ""}\n{}\n', mtime=0),
            "another version",
        ),
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "b"
    path.write_bytes(data)
    assert said in refused(path)


def test_facts_that_are_none_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "b"
    for content in (b"{}", b"[]", b"nonsense", b'{"eoctl_version": 5}'):
        header = {"schema": bundle_files.SCHEMA, "sha256": hashlib.sha256(content).hexdigest()}
        path.write_bytes(gzip.compress(json.dumps(header).encode() + b"\n" + content + b"\n"))
        assert "its facts cannot be read" in refused(path)


@pytest.mark.parametrize(
    "facts",
    [
        b'{"brokers":[' + b"1," * (1 << 20) + b"1]}",
        b'{"looks":[' + b"{}," * 700_000 + b"{}]}",
        b'{"topic_configs":{' + b",".join(b'"%d":1' % n for n in range(200_000)) + b"}}",
    ],
    ids=["numbers", "objects", "values"],
)
def test_many_wrong_facts_cost_no_more_than_one(tmp_path: Path, facts: bytes) -> None:
    """2 KB that unpack to 2 MiB took 1.7 GB: a message for each wrong item."""
    path = tmp_path / "b"
    header = {"schema": bundle_files.SCHEMA, "sha256": hashlib.sha256(facts).hexdigest()}
    path.write_bytes(gzip.compress(json.dumps(header).encode() + b"\n" + facts + b"\n"))
    # a process of its own: the most memory that one had never shrinks
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from eoctl.stores import bundle_files\n"
        "from recovery.errors import UsageError\n"
        "bundle_files._validator()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: bundle_files.read(Path(sys.argv[1]))\n"
        "except UsageError as error: print(error.sentence)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    sentence, grown = done.stdout.splitlines()
    assert "its facts cannot be read" in sentence
    assert int(grown) < 200 << 10  # KiB


def test_a_missing_file_or_a_folder_is_said(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "none")
    assert "cannot be read" in refused(tmp_path)


def test_a_bundle_that_unpacks_to_too_much_takes_no_memory(tmp_path: Path) -> None:
    """3 MB took 9.5 GB before they were refused. With and without a header, right or wrong."""
    import resource

    zeros = bytes(1 << 20)
    whole = hashlib.sha256()
    for _ in range(250):
        whole.update(zeros)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for checksum in (whole.hexdigest(), "0" * 64, None):
        path = tmp_path / str(checksum)
        with gzip.open(path, "wb", 1) as file:
            if checksum is not None:
                head = {"schema": bundle_files.SCHEMA, "sha256": checksum}
                file.write(json.dumps(head).encode() + b"\n")
            for _ in range(250):
                file.write(zeros)
            file.write(b"\n")
        with pytest.raises(UsageError, match=r"more than 128 MiB|not two lines"):
            bundle_files.read(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak - before < 100 << 10  # KiB


@pytest.mark.parametrize("twice", [True, False])
def test_ids_that_hold_nothing_are_judged_the_same_from_the_file(
    tmp_path: Path, twice: bool
) -> None:
    """Decided, Ongoing past its timeout, and with its record not read."""
    limits = replace(RULES, two_phase_patterns=tuple(RULES.two_phase_patterns))
    found = []
    for first, kept in (
        (id_look(), id_record()),
        (id_look("Ongoing", over_timeout=True), id_record("Ongoing")),
        (id_look(decided_long_ago=None), None),
    ):
        second = replace(first, collected_at=first.collected_at + 5000) if twice else None
        verdict = judge_id(first, second, kept, limits)
        found.append(JudgedId(first, second, kept, verdict))
    d = replace(empty(), ids=tuple(found), settings=limits)
    bundle_files.write(bundle(d), tmp_path / "b")
    read, _ = bundle_files.read(tmp_path / "b")
    assert judged_again(read).ids == d.ids
    assert len({j.verdict.rule for j in d.ids}) == 3
