"""A bundle answers as the cluster did: the same bytes, for every read command and format.

The wall clock is stopped while the cluster and its bundle are asked, since ages follow from it;
nothing else of the two runs is evened out.
"""

import gzip
import html
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eoctl.cli import main, options
from eoctl.kafka.ask import clocks
from eoctl.kafka.connection.wire import Connection
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.kafka.command import FAST, environment, eoctl
from tests.share import only_here


@dataclass(frozen=True)
class Scene:
    """A lab with trouble of many kinds in it, and a bundle of it."""

    lab: Lab
    bundle: Path
    truths: dict[str, GroundTruth]
    now: int  # ns: the stopped clock


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


async def agree(*_: object) -> int:
    """Ours is stopped: a coordinator's clock would seem to run ahead of it."""
    return 0


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """Run eoctl in this process."""
    options._before.clear()
    status = main.run(list(words))
    captured = capsys.readouterr()
    return Said(status, captured.out, captured.err)


@pytest.fixture(scope="module")
def scene(
    start_lab: Callable[[LabSpec], Lab], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    lab = start_lab(
        LabSpec(
            name="bundle",
            brokers=2,
            settings={
                "transaction.partition.verification.enable": "false",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
                # once five minutes old it would move leaders back between the two answers
                "auto.leader.rebalance.enable": "false",
            },
        )
    )
    try:
        truths = {}
        for kind in ("marker-lost", "open", "overdue", "offsets-pending", "zombie"):
            (truths[kind],) = break_(lab, kind)
        for variant in ("fresh", "marked", "late"):
            (truths[variant],) = break_(lab, "orphan", variant=variant, topic=f"orphan-{variant}")
        (truths["hostile"],) = break_(
            lab, "open", transactional_id="it's \x1b[31m`id`", topic="hostile", count=1
        )
        _read_some(lab, truths["fresh"].topic)
        path = tmp_path_factory.mktemp("bundle") / "incident"
        options._before.clear()
        patch = pytest.MonkeyPatch()
        now = time.time_ns()
        patch.setattr(time, "time_ns", lambda: now)
        patch.setattr(clocks, "_ahead", agree)
        status = main.run([*_create(lab, path), "--history"])
        patch.undo()
        assert status == 0
        yield Scene(lab, path, truths, now)
    finally:
        lab.down()


def _create(lab: Lab, path: Path) -> list[str]:
    server = ["--bootstrap-server", lab.bootstrap_servers]
    return ["bundle", "create", str(path), "--sample-interval", "300ms", *server]


def _read_some(lab: Lab, topic: str) -> None:
    """A group that has read what readers may see, and has left."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {**lab.client_properties(), "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert consumer.poll(20) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


QUESTIONS: list[tuple[str, ...]] = [
    ("status",),
    ("runbook",),
    ("doctor",),
    ("doctor", "{open.topic}", "billing"),
    ("lso",),
    ("lso", "--all", "--internal"),
    ("lso", "orphan-*", "{open.topic}"),
    ("lso", "nowhere", "{open.topic}:99"),
    ("why",),
    ("why", "{marker-lost.topic}"),
    ("why", "{overdue.topic}"),
    ("why", "orphan-fresh"),
    ("why", "orphan-late"),
    ("why", "hostile"),
    ("why", "__consumer_offsets"),
    ("why", "{zombie.topic}"),
    ("why", "--group", "nobody"),
    ("txn", "list"),
    ("txn", "list", "--state", "ongoing"),
    ("txn", "list", "--pid", "{open.producer_id}"),
    ("txn", "list", "--pattern", "lab-o.*"),
    ("txn", "list", "--longer-than", "1ms"),
    ("txn", "describe", "{open.transactional_id}", "{late.transactional_id}", "nobody"),
    ("txn", "hanging"),
    ("txn", "hanging", "--all"),
    ("txn", "hanging", "orphan-fresh", "{open.topic}"),
    ("txn", "history", "{marker-lost.transactional_id}"),
    ("txn", "history", "{late.transactional_id}", "nobody"),
    ("txn", "history", "--pid", "{overdue.producer_id}", "--since", "1h ago"),
    ("txn", "history", "--pid", "999999"),
    ("producers",),
    ("producers", "--resolve", "--internal"),
    ("producers", "{zombie.topic}", "--resolve"),
    ("producers", "--pid", "{fresh.producer_id}"),
    ("producers", "--summary", "--resolve", "--top", "3"),
    ("check",),
    ("check", "--nagios"),
    ("check", "--doctor"),
]
JUDGING = {"status", "runbook", "why", "hanging", "check"}


def words(question: tuple[str, ...], scene: Scene) -> list[str]:
    """The question with the truths filled in."""

    def fill(match: re.Match[str]) -> str:
        kind, name = match.group(1).rsplit(".", 1)
        return str(getattr(scene.truths[kind], name))

    return [re.sub(r"\{([a-z-]+\.[a-z_]+)\}", fill, word) for word in question]


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_live_and_bundle_say_the_same(
    question: tuple[str, ...],
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: scene.now)
    monkeypatch.setattr(clocks, "_ahead", agree)
    asked = words(question, scene)
    if JUDGING & set(question):
        asked += ["--sample-interval", "300ms"]
    formats: tuple[tuple[str, ...], ...] = (("-o", "json"), ("-o", "wide"), ("-o", "csv"))
    if "--nagios" in question:
        formats = ((),)
    for form in formats if question in (("lso",), ("why",)) else formats[:2]:
        # what a cache knew is told: as when the bundle was made, nothing is cached
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "-".join(("cache", *form))))
        live = run(capsys, *asked, *form, "--bootstrap-server", scene.lab.bootstrap_servers)
        kept = run(capsys, *asked, *form, "--from", str(scene.bundle))
        if question == ("status",) and form == ("-o", "json"):
            # a bundle holds no sizes of logs: what grows is not known from it
            assert '"growth": null' in kept.out
            kept = replace(kept, out=kept.out.replace('"growth": null', '"growth": []'))
        assert kept == live
        assert live.status in ((0, 2, 3) if "--nagios" in question else (0, 1, 3))
        assert live.out or live.err


FROM_LOGS = ("records", "at_least", "oldest_timestamp", "committed_at", "since", "moved")


def test_a_bundle_tells_of_a_group_all_but_what_its_logs_hold(
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Records are not counted, and there is no second look: it says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # as when the bundle was made
    monkeypatch.setattr(time, "time_ns", lambda: scene.now)
    monkeypatch.setattr(clocks, "_ahead", agree)
    words = ("why", "--group", "billing", "--sample-interval", "300ms")
    live = run(capsys, *words, "-o", "json", "--bootstrap-server", scene.lab.bootstrap_servers)
    kept = run(capsys, *words, "-o", "json", "--from", str(scene.bundle))
    assert kept.status == live.status
    told, known = json.loads(live.out), json.loads(kept.out)
    story, saw = told.pop("group_story"), known.pop("group_story")
    assert known == told
    assert "not in a bundle" in saw["since_unseen"]
    for row, seen in zip(story["partitions"], saw["partitions"], strict=True):
        assert [seen[name] for name in FROM_LOGS] == [None, False, None, None, None, None]
        assert {**row, **{name: seen[name] for name in FROM_LOGS}} == seen
    of_log = ("partitions", "empty_since", "last_members", "since_unseen")
    assert {k: v for k, v in saw.items() if k not in of_log} == {
        k: v for k, v in story.items() if k not in of_log
    }
    page = run(capsys, *words, "--from", str(scene.bundle)).out
    assert page.startswith("billing  ")
    assert "records not counted" in page


def test_the_runbook_tells_each_trouble_in_its_place(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the breaks made them; its commands, as they stand, show plans to carry out."""
    server = ("--bootstrap-server", scene.lab.bootstrap_servers, "--sample-interval", "300ms")
    told = run(capsys, "runbook", *server)
    assert told.status == run(capsys, "status", *server).status == 1
    sections = {p.partition("\n")[0]: p for p in re.split(r"^## ", told.out, flags=re.MULTILINE)}
    expected = {
        "Safe now": ("marker-lost", "fresh", "marked", "late"),
        "Needs a person's answer": ("overdue",),
        "Leave alone": ("open", "hostile", "offsets-pending"),
    }
    for section, kinds in expected.items():
        for kind in kinds:
            truth = scene.truths[kind]
            partition = f"`{truth.topic}:{truth.partition}`"
            found = [name for name in expected if partition in sections[name]]
            assert found == [section], kind
    safe = [
        shlex.split(line)[1:]
        for line in sections["Safe now"].splitlines()
        if line.startswith("  eoctl ") and "--plan" not in line and " apply " not in line
    ]
    assert [words[words.index("txn") + 1] for words in safe] == ["resolve", *["abort"] * 3]
    for words in safe:
        shown = run(capsys, *words, "--sample-interval", "300ms")
        assert shown.status == 0, (words, shown.err)
        assert "records" in shown.out


@pytest.mark.parametrize(
    "command",
    only_here([(["lso"],), (["why"],), (["producers"],), (["txn", "hanging"],)], (["why"],)),
    ids=str,
)
def test_a_pattern_that_matches_nothing_is_said_and_is_no_error(
    command: tuple[str, ...], scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt glob must not look like a cluster without trouble. As kubectl: stderr, exit 0."""
    server = ("--bootstrap-server", scene.lab.bootstrap_servers)
    for where in (server, ("--from", str(scene.bundle))):
        for form in ("table", "json"):
            said = run(capsys, *command, "orders-*:3", "orphan-*", *where, "-o", form)
            assert "eoctl: no partition matches 'orders-*:3'\n" in said.err
            assert "orphan-*'" not in said.err
            said = run(capsys, *command, "--regex", "order.", *where, "-o", form)
            assert (said.status, "no partition matches 'order.'" in said.err) == (0, True)


def test_the_comparison_sees_all_kinds_of_trouble(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was compared above is not a quiet cluster: the truths are all in it."""
    said = run(capsys, "txn", "hanging", "--all", "-o", "csv", "--from", str(scene.bundle))
    for kind, truth in scene.truths.items():
        if truth.verdict is not None and truth.start_offset is not None and kind != "zombie":
            assert re.search(rf"{truth.topic},.*,{truth.verdict},", said.out), kind
    assert said.status == 1


def test_a_report_of_it_tells_each_trouble(scene: Scene) -> None:
    """Made without a cluster, a home or settings; it holds the log of each partition."""
    bare = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    made = eoctl("report", str(scene.bundle), env=bare)
    assert made.status in (0, 3), made.stderr
    for truth in scene.truths.values():
        if truth.verdict is not None:
            partition = html.escape(f"{truth.topic}:{truth.partition}")
            assert f"{partition}: offsets" in made.stdout, truth.kind  # the log, as it was seen
            assert f"LSO {truth.last_stable_offset}" in made.stdout, truth.kind
            assert truth.verdict in made.stdout
    assert "second look" in made.stdout
    assert "\x1b" not in made.stdout
    assert "it&#x27;s \\x1b[31m`id`" in made.stdout


def test_no_cluster_and_no_settings_are_needed(scene: Scene, tmp_path: Path) -> None:
    """In a process of its own that knows no cluster, has no home and cannot write."""
    bare = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    asked = eoctl("why", "orphan-fresh", "--from", str(scene.bundle), "-o", "json", env=bare)
    assert asked.status == 1, asked.stderr
    (row,) = asked.rows
    truth = scene.truths["fresh"]
    assert row["held_by"]["verdict"] == "orphan"
    assert row["held_by"]["producer_id"] == truth.producer_id
    assert row["last_stable_offset"] == truth.last_stable_offset
    assert [g["group"] for g in row["groups"]] == ["billing"]
    assert eoctl("check", "--from", str(scene.bundle), env=bare).status == 1


@pytest.mark.parametrize(
    "command",
    [
        ("txn", "abort", "orphan-fresh:0", "--pid", "1", "--start-offset", "3"),
        ("txn", "fence", "x", "--pid", "1", "--epoch", "0"),
        ("context", "test"),
        ("offsets", "show"),
        ("offsets", "history", "x"),
        ("bundle", "create", "another"),
    ],
    ids=" ".join,
)
def test_what_acts_or_asks_anew_refuses_a_bundle(scene: Scene, command: tuple[str, ...]) -> None:
    ran = eoctl(*command, "--from", str(scene.bundle))
    assert ran.status == 4
    assert ran.stdout == ""
    assert "a bundle only answers what was seen" in ran.stderr


def test_a_bundle_and_a_cluster_are_not_both_asked(scene: Scene) -> None:
    for extra in (("--bootstrap-server", "x:1"), ("--context", "x"), ("--watch", "5")):
        ran = eoctl("lso", "--from", str(scene.bundle), *extra)
        assert ran.status == 2
    ran = eoctl("txn", "hanging", "--from", str(scene.bundle), "--long-after", "1s")
    assert ran.status == 2
    assert "limits it was made with" in ran.stderr


def test_without_history_only_what_is_held_has_one(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small"
    assert run(capsys, *_create(scene.lab, path)).status == 0
    held, gone = scene.truths["marker-lost"], scene.truths["offsets-pending"]
    own = ("-o", "csv", "--from", str(path))
    full = ("-o", "csv", "--from", str(scene.bundle))
    name = str(held.transactional_id)
    assert run(capsys, "txn", "history", name, *own) == run(capsys, "txn", "history", name, *full)
    pid = str(scene.truths["late"].producer_id)
    asked = ("txn", "history", "--pid", pid)
    assert run(capsys, *asked, *own) == run(capsys, *asked, *full)
    said = run(capsys, "txn", "history", "never-heard-of", *own)
    assert said.status == 3
    assert "made without --history" in said.err
    assert gone.transactional_id is not None


def test_open_verifies_and_counts(scene: Scene, tmp_path: Path) -> None:
    ran = eoctl("bundle", "open", str(scene.bundle), "-o", "json")
    assert ran.status == 0
    parts = {row["part"]: row["count"] for row in ran.rows}
    assert parts["groups"] >= 1
    assert parts["history records"] > 0
    assert ran.json["bootstrap_servers"] == scene.lab.bootstrap_servers
    damaged = tmp_path / "damaged"
    data = scene.bundle.read_bytes()
    env = environment(EOCTL_STATE_DIR=str(tmp_path / "state"))  # whose journal is empty
    for broken in (data[: len(data) // 2], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]):
        damaged.write_bytes(broken)
        for command in (("bundle", "open", str(damaged)), ("lso", "--from", str(damaged))):
            ran = eoctl(*command, env=env)
            assert (ran.status, ran.stdout) == (2, "")
            assert ran.stderr.startswith(f"eoctl: {damaged}: a damaged bundle: ")
            assert ran.stderr.count("\n") == 1


def test_no_secret_is_in_it(secure_lab: Lab, tmp_path: Path) -> None:
    from eoctl.lab import secure

    path = tmp_path / "bundle"
    file = secure.client_file(secure_lab.folder, "viewer", "SCRAM")
    password = secure.passwords(secure_lab.folder)["viewer"]
    ran = eoctl(
        *("bundle", "create", str(path), "--command-config", str(file), *FAST),
        *("--bootstrap-server", secure_lab.record.bootstrap_servers("SCRAM")),
        *("-X", "client.id=from-the-command-line", "-o", "json"),
    )
    assert ran.status in (0, 3), ran.stderr
    text = gzip.decompress(path.read_bytes()).decode()
    for secret in (password, "sasl", "jaas", "from-the-command-line"):
        assert secret not in text
    assert password in file.read_text()


def test_a_deadline_is_not_an_unreachable_cluster(lab1: Lab) -> None:
    """Of 10,000 partitions a bundle needs 91 s: what ran out is the time."""
    import asyncio

    from eoctl.kafka.connection.cluster import Cluster
    from eoctl.operations.session.session import with_cluster
    from eoctl.settings.context import Connect, resolve
    from recovery.errors import IncompleteError, UnreachableError

    async def slow(cluster: Cluster) -> None:
        """Its connections are gone when it goes on, and by then so is the time."""
        for connection in (cluster._bootstrap, *cluster._connections.values()):
            if isinstance(connection, Connection):
                connection.close()
        await asyncio.sleep(1.1)
        await cluster.metadata(None)
        await asyncio.sleep(60)

    context = resolve(Connect(bootstrap_server=lab1.bootstrap_servers))
    with pytest.raises(IncompleteError, match=r"not done within 1s.*--timeout"):
        with_cluster(context, 1.0, slow)
    nobody = resolve(Connect(bootstrap_server="127.0.0.1:1"))
    with pytest.raises(UnreachableError):
        with_cluster(nobody, 1.0, slow)
