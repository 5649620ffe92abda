"""What a terminal, a pipe, a signal and an environment do to a command; hostile names.

The commands run as processes of their own, against real brokers.
"""

import csv
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic
from tests.started import started

HOSTILE = (
    "esc\x1b[31mred\x1b[0m",
    "bidi‮gnp.exe",
    "[/x] [bold]markup[/bold]",
    "new\nline 99  Ongoing",
    "tab\tand\rreturn",
    "zero​width",
    "a:b=c@d;$(touch x)`y` 'q' \"r\" \\ | & *",
    " edges ",
    "L" * 249,
    "日本語🦄",
)
# all that must never reach a terminal as it is
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f​-‏‪-‮⁦-⁩]")


@pytest.fixture(scope="module")
def hostile(lab1: Lab) -> tuple[str, ...]:
    for name in HOSTILE:
        break_(lab1, "open", transactional_id=name)
    return HOSTILE


@pytest.fixture
def large(lab1: Lab, topic: MakeTopic) -> str:
    """A topic of which `lso` prints more than a pipe holds (64 KiB)."""
    return topic(lab1, partitions=500)


@pytest.mark.parametrize("form", ["table", "wide", "csv", "name", "json", "jsonl"])
def test_hostile_ids_are_escaped_in_every_format(
    lab1: Lab, hostile: tuple[str, ...], form: str
) -> None:
    for command in (("txn", "list"), ("lso",), ("producers", "--resolve")):
        ran = eoctl(*command, "-o", form, lab=lab1)
        assert ran.status == 0, ran.stderr
        assert not RAW.search(ran.stdout), command
        assert not RAW.search(ran.stderr), command


def test_hostile_ids_are_exact_in_json_and_undone_from_csv(
    lab1: Lab, hostile: tuple[str, ...]
) -> None:
    exact = {row["transactional_id"] for row in eoctl("txn", "list", "-o", "json", lab=lab1).rows}
    assert set(hostile) <= exact
    text = eoctl("txn", "list", "-o", "csv", lab=lab1).stdout
    shown = [row["transactional_id"] for row in csv.DictReader(io.StringIO(text))]
    assert len(shown) == len(exact)  # a newline in an id makes no row
    undone = {
        name.encode("latin-1", "backslashreplace").decode("unicode_escape")
        if re.search(r"\\(x|u|n|t|r|\\)", name)
        else name
        for name in shown
    }
    assert set(hostile) <= undone | exact
    assert "esc\x1b[31mred\x1b[0m" in undone
    assert "new\nline 99  Ongoing" in undone
    names = eoctl("txn", "list", "-o", "name", lab=lab1).stdout.splitlines()
    assert len(names) == len(exact)


def test_hostile_id_in_an_error_is_escaped(lab1: Lab) -> None:
    ran = eoctl("txn", "describe", "no such \x1b[31m‮id\n", lab=lab1)
    assert ran.status == 0
    assert not RAW.search(ran.stderr)
    assert r"\x1b[31m\u202eid\n" in ran.stderr


def test_named_hostile_ids_are_described(lab1: Lab, hostile: tuple[str, ...]) -> None:
    ran = eoctl("txn", "describe", "-o", "json", "--", *hostile, lab=lab1)
    assert ran.status == 0, ran.stderr
    assert {row["transactional_id"] for row in ran.rows} == set(hostile)
    assert {row["state"] for row in ran.rows} == {"Ongoing"}


def test_closed_pipe_ends_with_0(lab1: Lab, large: str) -> None:
    words = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, "lso", large, "-o", "json"]
    command = f"{' '.join(words)} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_ctrl_c_ends_with_130(lab1: Lab, tmp_path: Path) -> None:
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    words = [
        *EOCTL,
        "--bootstrap-server",
        lab1.bootstrap_servers,
        "txn",
        "list",
        "--watch",
        "-ojson",
    ]
    with started(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["complete"]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == "eoctl: interrupted\n"


def test_watch_in_json_is_an_envelope_a_line(lab1: Lab) -> None:
    words = [*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, "lso", "-w", "0.3", "-o", "json"]
    with started(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        rounds = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.wait(10)
    assert [found["schema"] for found in rounds] == ["eoctl.lso/v1"] * 3
    times = [found["collected_at"] for found in rounds]
    assert times == sorted(set(times))


def test_watch_on_a_terminal_draws_again(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, name="watched")
    words = ["-m", "eoctl", "--bootstrap-server", lab1.bootstrap_servers]
    child = pexpect.spawn(
        sys.executable,
        [*words, "lso", name, "--watch", "0.5"],
        env=environment(TERM="xterm"),
        dimensions=(24, 80),
        encoding="utf-8",
        timeout=20,
    )
    child.expect_exact("\x1b[H\x1b[2J")
    child.expect_exact(f"{name}:0")
    child.expect_exact("\x1b[H\x1b[2J")
    child.expect_exact(f"{name}:0")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


def test_table_on_a_terminal_fits_80_columns(lab1: Lab, hostile: tuple[str, ...]) -> None:
    for command in ("txn list", "lso", "producers --resolve"):
        shown = pexpect.run(
            " ".join([*EOCTL, "--bootstrap-server", lab1.bootstrap_servers, command]),
            env=environment(TERM="xterm", NO_COLOR="1"),
            timeout=30,
            encoding="utf-8",
        )
        assert isinstance(shown, str)
        lines = shown.splitlines()
        assert len(lines) > len(hostile)
        assert not [line for line in lines if _cells(line) > 80]


def _cells(text: str) -> int:
    import unicodedata

    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def test_no_home_is_no_matter_for_looking(lab1: Lab) -> None:
    names = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "EOCTL_STATE_DIR")
    env = environment(EOCTL_CACHE_DIR=None, **dict.fromkeys(names))
    ran = eoctl("lso", "-o", "json", lab=lab1, env=env)
    assert ran.status == 0, ran.stderr
    needed = eoctl("lab", "status", env=env)
    assert needed.status == 2
    assert "HOME" in needed.stderr
    assert "Traceback" not in needed.stderr


def test_unknown_topic_is_named(lab1: Lab) -> None:
    ran = eoctl("lso", "no-such-topic", "-o", "json", lab=lab1)
    assert ran.status == 3
    assert ran.rows == []
    (error,) = ran.json["errors"]
    assert (error["error"], error["topic"]) == ("UNKNOWN_TOPIC_OR_PARTITION", "no-such-topic")
    text = eoctl("producers", "no-such-topic:3", lab=lab1)
    assert text.status == 3
    assert "no-such-topic" in text.stderr


def test_partition_beyond_the_last_is_named(lab1: Lab, topic: MakeTopic) -> None:
    name = topic(lab1, partitions=2)
    ran = eoctl("lso", f"{name}:0-4", "-o", "json", lab=lab1)
    assert ran.status == 3
    assert [row["partition"] for row in ran.rows] == [0, 1]
    assert len(ran.json["errors"]) == 1


def test_unreachable_cluster_ends_with_5_in_time(tmp_path: Path) -> None:
    env = environment(EOCTL_STATE_DIR=str(tmp_path))  # whose journal is empty
    ran = eoctl("lso", "--bootstrap-server", "127.0.0.1:9", env=env)
    assert ran.status == 5
    assert ran.seconds < 10
    assert len(ran.stderr.splitlines()) == 1


def _config(folder: Path, text: str) -> str:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_several_contexts_the_worst_exit_wins(lab1: Lab, tmp_path: Path) -> None:
    config = _config(
        tmp_path,
        f'contexts.here.bootstrap_servers = "{lab1.bootstrap_servers}"\n'
        'contexts.gone.bootstrap_servers = "127.0.0.1:9"\n'
        f'contexts.also.bootstrap_servers = "{lab1.bootstrap_servers}"\n',
    )
    env = environment(EOCTL_CONFIG=config, EOCTL_STATE_DIR=str(tmp_path))
    good = eoctl("lso", "--context", "here,also", "-o", "json", env=env)
    assert good.status == 0
    found = [json.loads(line) for line in good.stdout.splitlines()]
    assert [envelope["context"] for envelope in found] == ["here", "also"]
    bad = eoctl("lso", "--all-contexts", "-o", "json", env=env)
    assert bad.status == 5
    assert [json.loads(line)["context"] for line in bad.stdout.splitlines()] == ["here", "also"]
    assert "gone" in bad.stderr
    # 5 over 3: an unknown topic on those that answer
    worst = eoctl("lso", "no-such-topic", "--context", "here,gone", env=env)
    assert worst.status == 5
    assert eoctl("lso", "no-such-topic", "--context", "here,also", env=env).status == 3
    assert eoctl("txn", "list", "--context", "here,also", env=env).status == 2


def test_precedence_flag_environment_file(lab1: Lab, tmp_path: Path) -> None:
    here, gone = lab1.bootstrap_servers, "127.0.0.1:9"
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={here}\n")
    config = _config(
        tmp_path,
        'context = "gone"\n'
        f'contexts.gone.bootstrap_servers = "{gone}"\n'
        f'contexts.here.bootstrap_servers = "{here}"\n',
    )
    state = str(tmp_path)

    def status(*words: str, **env: str) -> int:
        changed = {"EOCTL_CONFIG": config, "EOCTL_STATE_DIR": state, **env}
        return eoctl(*words, env=environment(**changed)).status

    assert status("lso") == 5  # the file's default
    assert status("lso", EOCTL_CONTEXT="here") == 0
    assert status("lso", EOCTL_BOOTSTRAP_SERVER=here) == 0
    assert status("lso", EOCTL_COMMAND_CONFIG=str(properties)) == 0
    assert status("lso", "--context", "gone", EOCTL_CONTEXT="here") == 5
    assert status("lso", "--context", "here", EOCTL_CONTEXT="gone") == 0
    assert status("lso", "--context", "here", EOCTL_BOOTSTRAP_SERVER=gone) == 0
    assert status("lso", "--bootstrap-server", here, EOCTL_CONTEXT="gone") == 0
    assert status("lso", "--command-config", str(properties), EOCTL_BOOTSTRAP_SERVER=gone) in (0, 5)
    assert status("lso", "-X", f"bootstrap.servers={here}") == 0  # wins over all


def test_connection_options_before_and_after(lab1: Lab) -> None:
    here, gone = lab1.bootstrap_servers, "127.0.0.1:9"
    assert eoctl("--bootstrap-server", here, "txn", "list").status == 0
    assert eoctl("txn", "--bootstrap-server", here, "list").status == 0
    assert eoctl("txn", "list", "--bootstrap-server", here).status == 0
    assert eoctl("--bootstrap-server", gone, "txn", "list", "--bootstrap-server", here).status == 0
    assert eoctl("--bootstrap-server", here, "txn", "list", "--bootstrap-server", gone).status == 5


def test_commands_on_an_empty_cluster(start_lab: object, lab_state: Path) -> None:
    from eoctl.lab.cluster import up
    from eoctl.lab.record import LabSpec

    lab = up(LabSpec(name="empty"))
    try:
        for command in (("lso",), ("lso", "--all"), ("txn", "list"), ("producers",)):
            ran = eoctl(*command, "-o", "json", lab=lab)
            unseen = command == ("txn", "list")  # no __transaction_state: made none, or lost it
            assert ran.status == (3 if unseen else 0), (command, ran.stderr)
            assert ran.rows == []
            assert ("__transaction_state" in str(ran.json["errors"])) == unseen
            table = eoctl(*command, lab=lab)
            assert table.status == ran.status
            assert len(table.stdout.splitlines()) == 1  # the header
        assert eoctl("txn", "describe", "nobody", lab=lab).status == 3
        assert "__transaction_state" not in _topics(lab)  # looking made nothing
    finally:
        lab.down()


def _topics(lab: Lab) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient(lab.client_properties()).list_topics(timeout=20).topics)


LOADED = """
import sys
from eoctl.cli.main import run
status = run(sys.argv[1:])
heavy = {name.partition(".")[0] for name in sys.modules}
print(status, *sorted(heavy & set("%s".split())), file=sys.stderr)
"""


def test_txn_list_loads_nothing_heavy(lab1: Lab, hostile: tuple[str, ...]) -> None:
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    heavy = "confluent_kafka numpy rich pyarrow pyspark textual sqlalchemy pandas kazoo"
    for command in (["txn", "list"], ["lso"], ["producers", "--resolve"]):
        done = subprocess.run(
            [sys.executable, "-c", LOADED % heavy, *command, *server],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        assert done.stderr.splitlines()[-1] == "0", command
