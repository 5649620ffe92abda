"""The journal: torn at every byte, damaged, raced, on a full disk, where there is no folder."""

import fcntl
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.stores import unfinished as notices
from eoctl.stores.journal_files import Journal, redacted
from recovery.change.journal import Event, EventName, decode, encode, entries, read, unfinished
from recovery.change.plan import Plan, Step
from recovery.errors import IncompleteError, RefusedError, UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=6), below),
    max_leaves=8,
)


def make(scope: str = "orders:3") -> Plan:
    step = Step(action="abort", target=scope, does="aborts", stands_on=())
    return Plan(
        kind="txn-abort",
        action="abort",
        created_at=1,
        expires_at=2,
        context="prod-eu",
        argv=(),
        cluster_id="c",
        scope=scope,
        summary=scope,
        lock="this host only",
        observed={},
        steps=(step, step),
    )


def child(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """`function` in a process of its own, started."""
    process = multiprocessing.get_context("forkserver").Process(target=function, args=arguments)
    process.start()
    return process


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    return Journal()


@given(
    st.text(max_size=30),
    st.integers(0, 2**50),
    st.none() | st.integers(1, 9),
    st.dictionaries(st.text(max_size=6), JSON, max_size=3),
)
def test_a_line_is_json_and_gives_back_its_event(
    entry: str, at: int, step: int | None, data: dict[str, Any]
) -> None:
    event = Event(entry, "step-done", at, step, data)
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["data"] == data
    assert decode(line[:-1]) == event


def test_a_line_with_any_byte_changed_is_no_event() -> None:
    line = encode(Event("j-1", "step-done", 5, 1, {"saw": {"offset": 17}}))[:-1]
    for position in range(len(line)):
        for other in (0, ord("0"), ord("9"), ord("}"), line[position] ^ 1):
            changed = line[:position] + bytes([other]) + line[position + 1 :]
            assert changed == line or decode(changed) is None
    assert decode(b"") is None
    assert decode(b"{}") is None


def test_a_journal_cut_at_every_byte_gives_the_events_before_the_cut() -> None:
    events = [Event("j-1", "begun", n, None, {"text": "é\n" * n}) for n in range(4)]
    lines = [encode(event) for event in events]
    data = b"".join(lines)
    ends = [sum(map(len, lines[:n])) for n in range(5)]
    for cut in range(len(data) + 1):
        whole = max(n for n in range(5) if ends[n] <= cut)
        reading = read(data[:cut])
        assert list(reading.events) == events[:whole]
        assert reading.torn == data[ends[whole] : cut]
        assert reading.whole == ends[whole]
        assert reading.damaged == []


def test_a_last_block_of_zeros_is_torn_and_a_bad_line_before_others_is_damage() -> None:
    line = encode(Event("j-1", "begun", 1))
    assert read(line + b"\0" * 40 + b"\n").torn == b"\0" * 40 + b"\n"
    reading = read(line + b"what\n\n" + line)
    assert reading.damaged == [2, 3]
    assert reading.torn == b""
    assert len(reading.events) == 2


STATES: list[tuple[list[EventName], str]] = [
    (["begun"], "unfinished"),
    (["begun", "step-started"], "unfinished"),
    (["begun", "step-started", "step-done"], "unfinished"),
    (["begun", "step-started", "step-refused"], "unfinished"),
    (["begun", "step-started", "step-done", "verified"], "done"),
    (["begun", "step-started", "failed"], "failed"),
    (["begun", "abandoned"], "abandoned"),
    (["begun", "step-started", "undone"], "undone"),
    (["begun", "step-started", "step-done", "verified", "undone"], "undone"),
]


@pytest.mark.parametrize(("names", "state"), STATES)
def test_states(names: list[EventName], state: str) -> None:
    events = [Event("j-1", name, at) for at, name in enumerate(names)]
    other = Event("j-2", "begun", 9)
    lost = Event("j-3", "step-started", 9, 1)  # its `begun` is not in the journal
    found = entries([*events, other, lost])
    assert [entry.id for entry in found] == ["j-1", "j-2"]
    assert found[0].state == state
    assert (found[0].ended_at is None) == (state == "unfinished")
    assert (found[0] in unfinished(found)) == (state == "unfinished")


def test_an_entry_is_written_read_and_ended(journal: Journal) -> None:
    assert journal.find().entries == []
    writer = journal.begin(make(), ["eoctl", "-X", "sasl.password=hunter2", "txn", "abort"])
    assert journal.find().running == {writer.entry}
    assert notices.unfinished_notice() is None  # it runs
    writer.append("step-started", step=1)
    writer.append("step-done", step=1, saw={"last_stable_offset": 17})
    writer.close()
    [entry] = journal.find().entries
    assert entry.plan == make()
    assert entry.begun.data["who"]["pid"] == os.getpid()
    assert entry.begun.data["argv"] == ["eoctl", "-X", "sasl.password=(hidden)", "txn", "abort"]
    assert b"hunter2" not in journal.path.read_bytes()
    assert entry.steps("step-done")[1].data["saw"] == {"last_stable_offset": 17}
    assert journal.find().running == frozenset()
    notice = notices.unfinished_notice()
    assert notice is not None
    assert notice.startswith(f"{entry.id}, unfinished since 20")
    assert "\n" not in notice
    again = journal.reopen(entry.id)
    with pytest.raises(RefusedError, match="right now"):
        journal.reopen(entry.id)
    again.append("verified")
    again.close()  # killed before its marker was removed
    assert journal.marker(entry.id).exists()
    assert notices.unfinished_notice() is None
    assert not journal.marker(entry.id).exists()
    assert journal.get(entry.id).state == "done"
    with pytest.raises(UsageError, match="no journal entry 'j-x'"):
        journal.get("j-x")
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.folder.stat().st_mode & 0o777 == 0o700


def test_secrets_of_a_command_line_are_hidden() -> None:
    assert redacted(["txn", "fence", "my-token-x=1", "-Xsasl.password=p"]) == [
        *("txn", "fence", "my-token-x=1"),
        "-Xsasl.password=(hidden)",
    ]
    kept = ["-X", "sasl.password=env:SECRET"]
    assert redacted(kept) == kept
    assert redacted(["-X", "ssl.key.password=a=b", "x=1", "--context", "p"]) == [
        "-X",
        "ssl.key.password=(hidden)",
        "x=1",
        "--context",
        "p",
    ]


@pytest.mark.parametrize("parameters", ["/;token=t", "/;user_id=u;token=t", ";token=t"])
def test_the_parameters_of_a_spark_connect_address_are_cut(parameters: str) -> None:
    said = f"sc://h:1{parameters}"
    assert redacted(["--remote", said, "a;b"]) == ["--remote", "sc://h:1", "a;b"]
    assert redacted([f"--remote={said}", "--at", "lso"]) == ["--remote=sc://h:1", "--at", "lso"]
    assert redacted(["--remote"]) == ["--remote"]


def test_the_next_line_after_a_torn_one_is_whole_and_the_torn_one_kept(journal: Journal) -> None:
    whole = encode(Event("j-1", "begun", 1, None, {"plan": "x" * 200_000}))
    next_ = Event("j-1", "verified", 2)
    cuts = [0, 1, 2, 100, len(whole) // 2, len(whole) - 20, len(whole) - 1]
    for torn in [whole[:cut] for cut in cuts] + [b"\0" * 512, b"\0" * 64 + b"\n"]:
        journal.folder.mkdir(parents=True, exist_ok=True)
        journal.path.write_bytes(whole + torn)
        (journal.folder / "torn").unlink(missing_ok=True)
        journal.append(next_)
        assert journal.path.read_bytes() == whole + encode(next_)
        if torn:
            assert (journal.folder / "torn").read_bytes() == torn + b"\n"


def test_every_start_is_quick_and_loads_nothing_while_nothing_is_unfinished(tmp_path: Path) -> None:
    code = (
        "import sys, timeit; from eoctl.stores.unfinished import unfinished_notice as n;"
        "assert n() is None; print(min(timeit.repeat(n, number=1, repeat=20)));"
        "assert 'pydantic' not in sys.modules"
    )
    for made in (False, True):
        if made:
            (tmp_path / "journal" / "open").mkdir(parents=True)
        environment = {**os.environ, "EOCTL_STATE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) < 0.001


def test_without_a_place_for_a_journal_there_is_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EOCTL_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert notices.unfinished_notice() is None


def _append_many(folder: Path, name: str, count: int) -> None:
    for number in range(count):
        Journal(folder).append(Event(name, "step-started", number, 1, {"text": name * 500}))


def test_processes_append_at_once_and_no_line_is_lost(journal: Journal) -> None:
    names = ["a", "b", "c"]
    processes = [child(_append_many, journal.folder, name, 60) for name in names]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    reading = journal.read()
    assert (reading.damaged, reading.torn) == ([], b"")
    for name in names:
        assert [e.at for e in reading.events if e.entry == name] == list(range(60))


def _kill_while_appending(folder: Path) -> None:
    Journal(folder).begin(make(), [])
    os.kill(os.getpid(), 9)


def test_a_killed_process_lets_go_of_its_entry(journal: Journal) -> None:
    process = child(_kill_while_appending, journal.folder)
    process.join(60)
    assert process.exitcode == -9
    found = journal.find()
    assert [entry.state for entry in found.entries] == ["unfinished"]
    assert found.running == frozenset()


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system mounted with the options asked for."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("cannot mount here; the limit on file sizes is tried instead")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("disk", ["size=64k"], indirect=True)
def test_a_full_disk_refuses_before_anything_is_sent(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(disk))
    journal = Journal()
    writer = journal.begin(make(), [])
    (disk / "filler").write_bytes(b"x" * (free_bytes(disk) - 4096))
    with pytest.raises(RefusedError, match="No space left on device") as caught:
        _append_until_refused(journal)
    assert caught.value.where == str(journal.path)
    assert caught.value.exit_status == 4
    before = journal.read()
    assert (before.torn, before.damaged) == (b"", [])  # what was written in part was taken back
    (disk / "filler").unlink()
    writer.append("step-done", step=1)
    assert len(journal.read().events) == len(before.events) + 1
    writer.close()
    (disk / "filler").write_bytes(b"x" * free_bytes(disk))
    with pytest.raises(RefusedError, match="No space left on device"):
        _append_until_refused(journal)  # the rest of the file's last block
    with pytest.raises(RefusedError, match="No space left on device"):
        journal.begin(make(), [])
    assert len(journal.find().entries) == 1
    assert [marker.name for marker in (journal.folder / "open").iterdir()] == [writer.entry]


@pytest.mark.parametrize("disk", ["ro"], indirect=True)
def test_a_read_only_home_is_told(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_STATE_DIR", str(disk / "state"))
    with pytest.raises(RefusedError, match=f"^{disk}.*cannot be written: Read-only file system"):
        Journal().begin(make(), [])
    assert Journal().find().entries == []


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


def _append_until_refused(journal: Journal) -> None:
    for number in range(1000):
        journal.append(Event("j-1", "step-started", number, 1, {"text": "x" * 100}))


def _append_within(folder: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with pytest.raises(RefusedError, match=r"File too large|No space left"):
        _append_until_refused(Journal(folder))
    raise SystemExit(7)


def test_a_limit_on_file_sizes_leaves_only_whole_lines(journal: Journal) -> None:
    process = child(_append_within, journal.folder, 5000)
    process.join(60)
    assert process.exitcode == 7
    reading = journal.read()
    assert (reading.torn, reading.damaged) == (b"", [])
    assert len(reading.events) > 10
    assert journal.path.stat().st_size <= 5000


def test_a_folder_that_cannot_be_written_or_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(RefusedError, match="the journal cannot be written: Not a directory"):
        Journal().begin(make(), [])
    with pytest.raises(IncompleteError, match="the journal cannot be read"):
        Journal().find()
    assert notices.unfinished_notice() is None
    monkeypatch.setenv("EOCTL_STATE_DIR", "/proc/nowhere")
    with pytest.raises(RefusedError, match="the journal cannot be written: No such file"):
        Journal().begin(make(), [])
    (tmp_path / "state" / "journal" / "journal.jsonl").mkdir(parents=True)
    monkeypatch.setenv("EOCTL_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(RefusedError, match="Is a directory"):
        Journal().begin(make(), [])
    assert list((tmp_path / "state" / "journal" / "open").iterdir()) == []


def test_a_plan_of_another_version_is_told(journal: Journal) -> None:
    journal.append(Event("j-1", "begun", 1, None, {"plan": {"kind": "x"}, "sha256": "0"}))
    with pytest.raises(UsageError, match="another version"):
        _ = journal.get("j-1").plan


def test_two_entries_of_one_second_differ(journal: Journal) -> None:
    writers = [journal.begin(make(), []) for _ in range(20)]
    assert len({writer.entry for writer in writers}) == 20
    assert all(time.strftime("j-%Y", time.gmtime()) in writer.entry for writer in writers)
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("what", ["read", "append"])
def test_one_waits_for_a_line_that_another_is_writing(journal: Journal, what: str) -> None:
    journal.append(Event("j-1", "begun", 1))
    with journal.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if what == "read":
            process = child(_read_all, journal.folder)
        else:
            process = child(_append_many, journal.folder, "j-1", 1)
        process.join(1.0)
        assert process.exitcode is None
    process.join(30)
    assert process.exitcode == 0


def _read_all(folder: Path) -> None:
    assert len(Journal(folder).read().events) == 1
