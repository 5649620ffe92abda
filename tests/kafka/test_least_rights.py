"""What docs/permissions.md publishes: with just these rights a command works, and each is needed.

A user of a real broker with ACLs gets the rights of a row; then one after the other is taken away,
and each time the answer must name it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.users import USERS
from recovery.inspect.rights import NEEDS
from tests.conftest import Tried
from tests.kafka.command import FAST, Ran
from tests.kafka.conftest import MakeTopic, made_topic
from tests.kafka.merging import World, write_copies, write_plain
from tests.kafka.remedying import abort
from tests.kafka.rights import Right, as_user, rights
from tests.share import only_here

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
KINDS = {"topics": "TOPIC", "groups": "GROUP", "transactional ids": "TRANSACTIONAL_ID"}
TOPIC, GROUP, ID = "TOPIC", "GROUP", "ID"
LOOKING: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "lso": (("lso", TOPIC),),
    "producers": (("producers", TOPIC),),
    "txn list, txn describe": (("txn", "list"), ("txn", "describe", ID)),
    "txn list --summary": (("txn", "list", "--summary"),),
    "txn history": (("txn", "history", ID),),
    "status, txn hanging": (("status", *FAST), ("txn", "hanging", *FAST)),
    "why": (("why", *FAST),),
    "check": (("check", *FAST),),
    "doctor": (("doctor",),),
    "offsets show": (("offsets", "show", "--group", GROUP),),
    "offsets show --lag-seconds": (("offsets", "show", "--group", GROUP, "--lag-seconds"),),
    "offsets history": (("offsets", "history", GROUP),),
    "offsets count, audit, state rebuild": (
        ("offsets", "count", f"{TOPIC}:0", "earliest", "lso"),
        ("audit", "sequences", TOPIC),
    ),
    "restart plan": (("restart", "plan", "--group", GROUP, "--topic", TOPIC, "--to-earliest"),),
}
"""Commands of the rows that look."""
WHERE_NEEDED = {"__consumer_offsets: READ", "groups: DESCRIBE"}
"""Where a transaction commits offsets, or is of a group: the orphan here does and is neither."""
YES = ("--execute", "--yes")


@pytest.fixture
def held(secure_lab: Lab) -> Iterator[None]:
    """An orphan to judge."""
    [orphan] = break_(secure_lab, "orphan", hold=False)
    yield
    admin = AdminClient(secure_lab.client_properties())
    for gone in admin.delete_topics([orphan.topic], operation_timeout=20).values():
        gone.result(30)


def test_the_published_lists_are_the_labs_users() -> None:
    """Whose commands `test_rights` tries. An operator's WRITE and CREATE are for outputs alone."""
    published = {user: set(_published(user)) for user in ("viewer", "operator")}
    for user, listed in published.items():
        lab = {(k, operation) for k, operations in USERS[user].items() for operation in operations}
        assert listed == lab


def _published(user: str) -> Iterator[tuple[str, str]]:
    """Each kind of resource and operation of the page's command lines for this user."""
    for line in re.findall(rf"^kafka-acls.*User:eoctl-{user} .*$", PAGE.read_text(), re.MULTILINE):
        *_, kind, _ = re.split(r" --(cluster|topic|group|transactional-id)", line)
        for operation in re.findall(r"--operation (\w+)", line):
            spoken = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            yield kind.upper().replace("-", "_"), spoken


def right(name: str) -> Right:
    """`topics: READ` as an ACL on all topics; `__transaction_state: READ` on that topic."""
    kind, operation = name.split(": ")
    if kind.startswith("__"):
        return "TOPIC", kind, operation
    if kind == "cluster":
        return "CLUSTER", "kafka-cluster", operation
    return KINDS[kind], "*", operation


def without(taken: str, needed: tuple[str, ...]) -> tuple[list[Right], list[Right]]:
    """What is granted, and denied, to somebody who lacks one of these rights.

    Without READ, WRITE or ALTER the DESCRIBE that these imply is still there.
    """
    kind, operation = taken.split(": ")
    left = {right(other) for other in needed if other != taken}
    if operation in ("READ", "WRITE", "ALTER"):
        left.add(right(f"{kind}: DESCRIBE"))
    covered = kind.startswith("__") and ("TOPIC", "*", operation) in left
    return sorted(left), [right(taken)] if covered else []


def implied(taken: str, needed: tuple[str, ...]) -> bool:
    """Whether Kafka's authorizer grants it to whoever has another of these rights."""
    kind, operation = taken.split(": ")
    others = {f"{kind}: {other}" for other in ("READ", "WRITE", "ALTER")}
    return operation == "DESCRIBE" and not others.isdisjoint(needed)


def run(lab: Lab, used: str, words: tuple[str, ...]) -> Ran:
    named = {TOPIC: used, GROUP: f"{used}-group", ID: f"{used}-id", f"{TOPIC}:0": f"{used}:0"}
    return as_user(lab, "nobody", *(named.get(word, word) for word in words), "-o", "json")


def told(ran: Ran) -> list[dict[str, object]]:
    """What an answer says of each thing, without times and counts."""
    keys = ("topic", "partition", "transactional_id", "group", "rule", "verdict", "state", "ok")
    return [{key: row.get(key) for key in keys} for row in ran.rows]


def refusal(ran: Ran) -> str:
    """What an answer says it could not see, or the one sentence of a command that has no answer."""
    if not ran.stdout:
        assert ran.status == 3
        return ran.stderr
    return " ".join(error["detail"] for error in ran.json["errors"])


@pytest.mark.parametrize("row", only_here(LOOKING, *[*LOOKING][::3], beyond="trust"))
def test_a_command_works_with_its_rights_and_names_one_that_is_missing(
    secure_lab: Lab, used: str, held: None, tried: Tried, row: str
) -> None:
    """A right that no command here misses is one of WHERE_NEEDED, and then all say the same."""
    needed, whole, missed = NEEDS[row], {}, set[str]()
    with rights(secure_lab, "nobody", *map(right, needed)):
        for words in LOOKING[row]:
            whole[words] = ran = run(secure_lab, used, words)
            assert ran.status in (0, 1), (words, ran.stdout, ran.stderr)
            assert ran.json["complete"], (words, ran.json["errors"])
    for taken in needed:
        if implied(taken, needed):
            continue
        left, denied = without(taken, needed)
        with rights(secure_lab, "nobody", *left), rights(secure_lab, "nobody", *denied, deny=True):
            for words, before in whole.items():
                ran = run(secure_lab, used, words)
                tried("commands without a right", 1)
                if ran.status in (0, 1) and ran.json["complete"]:
                    assert told(ran) == told(before), (taken, words)
                    continue
                missed.add(taken)
                operation = taken.split(": ")[1]
                assert re.search(rf"\b{operation}\b", refusal(ran)), (taken, words, refusal(ran))
    assert {right for right in needed if not implied(right, needed)} - missed <= WHERE_NEEDED


def fence(live: GroundTruth) -> tuple[str, ...]:
    return ("txn", "fence", live.transactional_id or "", "--owner-is-gone", *FAST)


@pytest.mark.parametrize(
    ("row", "kind", "act"),
    [
        ("txn abort, txn resolve", "orphan", abort),
        ("txn abort, txn resolve under an idle id", "idle-owner", abort),
        ("txn fence", "open", fence),
    ],
)
def test_a_remedy_without_one_of_its_rights_changes_nothing(
    secure_lab: Lab,
    used: str,
    tried: Tried,
    row: str,
    kind: str,
    act: Callable[[GroundTruth], tuple[str, ...]],
) -> None:
    """An id is raised before its marker, so its epoch is looked at beside the stable offset."""
    [broken] = break_(secure_lab, kind, hold=False)

    def seen() -> object:
        looked = as_user(secure_lab, "admin", "lso", broken.topic, "-o", "json")
        named = as_user(secure_lab, "admin", "txn", "list", "-o", "json")
        epochs = [
            row["producer_epoch"]
            for row in named.rows
            if row["transactional_id"] == broken.transactional_id
        ]
        return epochs, [row["last_stable_offset"] for row in looked.rows]

    check_that_acting_needs(secure_lab, row, (*act(broken), *YES), seen, tried)


@pytest.fixture
def plan(secure_lab: Lab, topic: MakeTopic, tmp_path: Path) -> tuple[str, str]:
    """A group with a commit on one of two partitions, and the file of a plan that sets both."""
    name = topic(secure_lab, 2)
    write_plain(secure_lab, (name, 0), [b"1"])
    properties = secure_lab.client_properties() | {"group.id": name}
    member = Consumer(properties)
    member.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    member.close()
    file = str(tmp_path / "plan.json")
    words = ("restart", "plan", "--group", name, "--topic", name, "--to-earliest", "--out", file)
    made = as_user(secure_lab, "admin", *words)
    assert made.status == 0, made.stderr
    return name, file


def committed(lab: Lab, group: str) -> list[int]:
    """The group's offset on each of the two partitions of its topic; -1001 = none."""
    member = Consumer(lab.client_properties() | {"group.id": group})
    found = member.committed([TopicPartition(group, p) for p in (0, 1)], 20)
    member.close()
    return [one.offset for one in found]


@pytest.mark.trust
def test_a_restart_and_its_undo_without_one_of_their_rights_change_nothing(
    secure_lab: Lab, plan: tuple[str, str], tried: Tried
) -> None:
    """The undo sets the first offset back and deletes the second, for which DELETE is needed."""
    group, file = plan
    for command in ("apply", "undo"):
        words = ("restart", command, file, *YES)
        seen = partial(committed, secure_lab, group)
        check_that_acting_needs(secure_lab, f"restart {command}", words, seen, tried)


def copy_words(row: str, world: World, folder: Path) -> tuple[str, ...]:
    """The words that write something into the output of this world."""
    if row == "dedup":
        return ("dedup", world.left, world.output, "--by", "value")
    if row == "merge replay":
        return ("merge", "replay", *world.words)
    state = str(folder / "state")
    log = made_topic(world.lab, config={"cleanup.policy": "compact"})
    write_copies(world.lab, (log, 0), [(b"key", b"value", None, 1_700_000_000_000)])
    made = as_user(
        *(world.lab, "admin", "state", "rebuild", log, "--format", "plain"),
        *("--at", "lso", "--output", state),
    )
    assert made.status == 0, made.stderr
    return ("state", "deliver", state, "--into", f"topic:{world.output}", "--without-headers")


@pytest.mark.parametrize(
    "row", only_here(["dedup", "state deliver", "merge replay"], "dedup", beyond="trust")
)
def test_a_copy_without_one_of_its_rights_shows_its_readers_nothing(
    secure_lab: Lab, topic: MakeTopic, tmp_path: Path, tried: Tried, row: str
) -> None:
    world = World(secure_lab, topic, count=3)
    world.write_logs()
    words = (*copy_words(row, world, tmp_path), *YES)
    check_that_acting_needs(secure_lab, row, words, lambda: world.got, tried)


def check_that_acting_needs(
    lab: Lab,
    row: str,
    words: tuple[str, ...],
    seen: Callable[[], object],
    tried: Tried,
) -> None:
    """The command is refused without each of its rights, changes nothing then, and works with all.

    seen: gives what it changes, as the super user sees it.
    """
    before, needed = seen(), NEEDS[row]
    for taken in needed:
        if implied(taken, needed):
            continue
        left, denied = without(taken, needed)
        with rights(lab, "nobody", *left), rights(lab, "nobody", *denied, deny=True):
            ran = as_user(lab, "nobody", *words)
        tried("commands without a right", 1)
        assert ran.status in (3, 4), (taken, ran.stdout, ran.stderr)
        assert taken.split(": ")[1] in ran.stdout + ran.stderr, (taken, ran.stdout, ran.stderr)
        assert seen() == before, taken
    with rights(lab, "nobody", *map(right, needed)):
        ran = as_user(lab, "nobody", *words)
    assert ran.status == 0, (ran.stdout, ran.stderr)
    assert seen() != before
