"""Plans without an application file, held against kafka-consumer-groups --dry-run."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import eoctl
from tests.kafka.conftest import MakeTopic
from tests.kafka.crashed import START, commit, committed, producing, write
from tests.kafka.tools import kafka_tool

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@dataclass
class Group:
    """Two topics: 30 records in each of two partitions, 10 in one; committed in all but one."""

    lab: Lab
    folder: Path
    two: str
    one: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"g-{self.two}"
        producer = producing(self.lab)
        for partition in (0, 1):
            write(producer, self.two, [str(n) for n in range(30)], partition)
        write(producer, self.one, [str(n) for n in range(10)])
        commit(self.lab, self.name, {(self.two, 0): 20, (self.two, 1): 4, (self.one, 0): 3})

    def named(self, words: Sequence[str]) -> list[str]:
        at = datetime.fromtimestamp((START + 5) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.005Z")
        return [w.format(two=self.two, one=self.one, none="adhoc-none", at=at) for w in words]

    def planned(self, *words: str) -> dict[tuple[str, int], int]:
        ran = eoctl(
            "restart",
            "plan",
            "--group",
            self.name,
            *self.named(words),
            "--pause",
            "0.1s",
            "--export",
            lab=self.lab,
        )
        assert ran.status == 0, ran.stderr
        rows = [line.split(",") for line in ran.stdout.splitlines()]
        return {(topic, int(p)): int(offset) for topic, p, offset in rows}

    def tool(self, *words: str) -> dict[tuple[str, int], int]:
        """What Kafka's own tool would do."""
        server = ("--bootstrap-server", self.lab.bootstrap_servers)
        ran = kafka_tool(
            self.lab,
            TOOL,
            *server,
            "--group",
            self.name,
            "--reset-offsets",
            "--dry-run",
            *self.named(words),
        )
        rows = re.findall(rf"^{self.name}\s+(\S+)\s+(\d+)\s+(\d+)\s*$", ran.stdout, re.M)
        assert rows, ran.stdout + ran.stderr
        return {(topic, int(p)): int(offset) for topic, p, offset in rows}


@pytest.fixture(scope="module")
def group(lab1: Lab, tmp_path_factory: pytest.TempPathFactory) -> Group:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(lab1.client_properties())
    run = uuid.uuid4().hex[:8]
    names = {f"adhoc-two-{run}": 2, f"adhoc-one-{run}": 1}
    new = [NewTopic(name, partitions, 1) for name, partitions in names.items()]
    for made in admin.create_topics(new, operation_timeout=10).values():
        made.result(20)
    return Group(lab1, tmp_path_factory.mktemp("adhoc"), *names)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("--to-earliest", "--all-topics"), ("--to-earliest", "--all-topics")),
        (
            ("--to-latest-stable", "--topic", "{two}"),
            ("--to-latest", "--topic", "{two}"),
        ),
        (
            ("--to-offset", "7", "--topic", "{two}:0,1"),
            ("--to-offset", "7", "--topic", "{two}:0,1"),
        ),
        (("--shift-by", "-2", "--all-topics"), ("--shift-by", "-2", "--all-topics")),
        # the sixth record's time
        (
            ("--to-datetime", "{at}", "--all-topics"),
            ("--to-datetime", "{at}", "--all-topics"),
        ),
        (("--by-duration", "P1D", "--all-topics"), ("--by-duration", "P1D", "--all-topics")),
        (("--to-current", "--all-topics"), ("--to-current", "--all-topics")),
    ],
)
def test_as_kafkas_own_tool(group: Group, ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    assert group.planned(*ours) == group.tool(*theirs)


def test_a_file_goes_there_and_back(group: Group) -> None:
    """Exported by one, read by the other."""
    file = group.folder / "offsets.csv"
    file.write_text(f"{group.two},0,11\n{group.two},1,12\n")
    words = ("--from-file", str(file))
    planned = group.planned(*words)
    assert planned == group.tool(*words) == {(group.two, 0): 11, (group.two, 1): 12}


@pytest.mark.parametrize(
    ("words", "guarantee"),
    [
        (("--to-earliest", "--all-topics"), "at-least-once"),
        (("--to-latest-stable", "--all-topics"), "at-most-once"),
        (("--to-lso", "--topic", "{one}"), "at-most-once"),
        (("--to-offset", "4", "--topic", "{one}:0"), "at-most-once"),
        (("--shift-by", "-1", "--topic", "{one}"), "at-least-once"),
    ],
)
def test_the_guarantee_that_is_left(group: Group, words: tuple[str, ...], guarantee: str) -> None:
    ran = eoctl(
        "restart",
        "plan",
        "--group",
        group.name,
        *group.named(words),
        "--pause",
        "0.1s",
        "-o",
        "json",
        lab=group.lab,
    )
    assert ran.rows[0]["guarantee"] == guarantee
    assert ran.rows[0]["because"]


def test_nothing_is_clamped(group: Group) -> None:
    """Where the tool warns and takes another offset, it is refused."""
    for words, says in (
        (("--to-offset", "31", "--topic", "{two}:0"), "above the last stable offset 30"),
        (("--shift-by", "-5", "--topic", "{two}:1"), "restart is at -1"),
        (("--shift-by", "1", "--topic", "{none}"), "no such topic"),
        (("--to-current", "--topic", "{two}:7"), "7 does not exist"),
    ):
        ran = eoctl(
            "restart",
            "plan",
            "--group",
            group.name,
            *group.named(words),
            "--pause",
            "0.1s",
            lab=group.lab,
        )
        assert ran.status in (3, 4), (words, ran)
        assert says in ran.stderr, ran.stderr


def test_applied_and_put_back(lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    group = Group(lab1, tmp_path, topic(lab1, 2), topic(lab1))
    file = str(tmp_path / "plan.json")
    words = ("--to-offset", "6", "--topic", group.two, "--out", file)
    group.planned(*words)
    before = committed(lab1, group.name)
    done = eoctl("restart", "apply", file, "--execute", "--yes", lab=lab1)
    assert done.status == 0, done.stderr
    after = before | {(group.two, 0): 6, (group.two, 1): 6}
    assert committed(lab1, group.name) == after
    verified = eoctl("restart", "verify", file, "--pause", "0.1s", lab=lab1)
    assert verified.status == 0, verified.stdout
    assert eoctl("restart", "undo", file, "--execute", "--yes", lab=lab1).status == 0
    assert committed(lab1, group.name) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to-earliest",), "--topic"),
        (("--all-topics",), "exactly one of"),
        (("--all-topics", "--to-earliest", "--to-current"), "exactly one of"),
        (("--all-topics", "--to-offset", "-1"), "not an offset"),
        (("--all-topics", "--from-file", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_wrong_words(group: Group, words: tuple[str, ...], says: str) -> None:
    ran = eoctl("restart", "plan", "--group", group.name, *words, lab=group.lab)
    assert ran.status == 2
    assert says in ran.stderr
