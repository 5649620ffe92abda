"""Exit statuses, streams and the report of eoctl's own errors, at the command line's one place."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from eoctl.cli.commands import context as context_commands
from eoctl.cli.main import run, watch_words
from recovery import errors
from recovery.errors import EoctlError

SECRET = "hunter2"
REBUILD = ["state", "rebuild", "t", "--format", "plain", "--at", "lso"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and nothing of ours in the environment."""
    for name in [n for n in os.environ if n.startswith(("EOCTL_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`context list` raises it."""

    def load() -> None:
        raise error

    monkeypatch.setattr("eoctl.settings.context.load_config", load)
    monkeypatch.setattr(context_commands, "load_config", load, raising=False)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.UsageError, 2),
        (errors.IncompleteError, 3),
        (errors.RefusedError, 4),
        (errors.UnreachableError, 5),
        (errors.UnverifiedError, 6),
        (errors.BusyError, 75),
    ],
)
def test_an_error_is_one_line_and_its_status(
    kind: type[EoctlError],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(monkeypatch, kind("what\n\x1b[31m", where="where", remedy="remedy"))
    assert run(["context", "list"]) == status
    out, err = capsys.readouterr()
    assert (out, err) == ("", "eoctl: where: what\\n\\x1b[31m; remedy\n")


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert run(["context", "list"]) == 130
    assert capsys.readouterr().err.split() == ["eoctl:", "interrupted"]


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["context", "list", "--no-such-option"],
        ["txn", "describe"],
        ["context", "use", "a", "b"],
        ["context", "list", "-o", "xml"],
        ["lso", "--timeout", "never", "--bootstrap-server", "127.0.0.1:1"],
        ["--context", "none", "lso"],
        ["--context", ",", "lso"],
        ["--context", ",", "status"],
    ],
)
def test_wrong_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eoctl: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["txn"]])
def test_no_words_at_all_show_the_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert "Usage: eoctl" in capsys.readouterr().out


def test_an_error_of_our_own_leaves_a_report_without_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ValueError(f"cannot parse {SECRET}"))
    words = ["context", "list", "--context", "seen"]
    for key in (
        "sasl.password",
        "SASL.Password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ):
        words += ["-X", f"{key}={SECRET}"]
    words += [f"-Xsasl.password={SECRET}"]
    assert run(words) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert SECRET not in err
    [report] = (home / ".local/state/eoctl/reports").iterdir()
    assert str(report) in err
    text = report.read_text()
    assert "ValueError: cannot parse" in text
    assert "seen" in text
    assert SECRET not in text
    assert report.stat().st_mode & 0o077 == 0
    assert report.parent.stat().st_mode & 0o077 == 0


def test_where_no_report_can_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("EOCTL_STATE_DIR", str(home / "file"))
    failing(monkeypatch, ValueError(f"first\nlast {SECRET}"))
    assert run(["context", "list", "-X", f"sasl.password={SECRET}"]) == 70
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "last" in err
    assert SECRET not in err


def test_connection_options_of_one_run_are_not_those_of_the_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--context", "gone", "lso"]) == 2
    assert "no context 'gone'" in capsys.readouterr().err
    assert run(["lso"]) == 2
    assert "no cluster is named" in capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError(32, "by a broker"), SystemExit(1)])
def test_only_a_closed_stdout_is_a_closed_pipe(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody else's broken pipe must not end as `done, nothing wrong`."""
    failing(monkeypatch, error)
    assert run(["context", "list"]) == 70
    assert "internal" in capsys.readouterr().err


def shell(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script.replace("eoctl", f"{sys.executable} -m eoctl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
    )


@pytest.mark.parametrize("words", ["--version", "--help", "context list", "completion bash"])
def test_a_reader_that_has_seen_enough(words: str) -> None:
    # the pipe is surely closed before the first word is written
    done = shell(f"{{ sleep 0.3; eoctl {words}; echo $? >&2; }} | true")
    assert done.stderr == "0\n"


@pytest.mark.parametrize("words", ["--version", "context list", "--help"])
@pytest.mark.parametrize("unbuffered", ["", "PYTHONUNBUFFERED=1 "])
def test_a_full_disk_is_not_silent(words: str, unbuffered: str) -> None:
    done = shell(f"{unbuffered}eoctl {words} > /dev/full")
    assert done.returncode == 3
    assert done.stderr == "eoctl: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", ["--version", "context list", "--help"])
def test_a_stdout_that_is_closed_from_the_start(words: str) -> None:
    done = shell(f"eoctl {words} >&-")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lso", "-w"], ["lso", "-w", "5"]),
        (["lso", "-w", "orders"], ["lso", "-w", "5", "orders"]),
        (["lso", "--watch", "2m", "orders"], ["lso", "--watch", "2m", "orders"]),
        (["lso", "-w", "0.5"], ["lso", "-w", "0.5"]),
        (["lso", "--watch=7"], ["lso", "--watch=7"]),
        (["lso", "--", "-w"], ["lso", "--", "-w"]),
    ],
)
def test_watch_without_its_number(words: list[str], expected: list[str]) -> None:
    assert watch_words(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["bundle", "open", "s3://b/x"],
        ["lso", "--from", "s3a://b/x"],
    ],
)
def test_an_address_is_no_folder_of_this_machine(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    address = next(word for word in words if "://" in word)
    assert f"eoctl: {address}: an address, and only folders" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        [*REBUILD, "--output", "hdfs://n/x"],
        [*REBUILD, "--output", "abfss://b@c/x"],
        [*REBUILD, "--output", "new", "--since", "hdfs://n/x"],
        ["jobs", "export", "job", *REBUILD[2:], "--output", "hdfs://n/x"],
        ["jobs", "export", "job", *REBUILD[2:], "--output", "new", "--since", "file:///x"],
        ["state", "show", "hdfs://name/x"],
        ["state", "compare", "hdfs://n/x", "b"],
        ["state", "deliver", "file:///x", "--into", "topic:t"],
    ],
)
def test_a_state_is_in_a_folder_or_in_object_storage(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    scheme = next(word for word in words if "://" in word).partition(":")[0]
    assert f"{scheme}:// is not read or written here; give a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["EOCTL_STATE_DIR", "XDG_STATE_HOME"])
def test_nor_is_one_in_the_environment(
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EOCTL_STATE_DIR", raising=False)
    monkeypatch.setenv(variable, "s3a://b/x")
    assert run(["jobs", "list"]) == 2
    assert "eoctl: s3a://b/x: an address, and only folders" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x:Y", ".x:Y", "a b:C", ":Y", "x:"])
def test_a_format_that_names_no_class(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-server", "127.0.0.1:1", "state", "rebuild", "t", "--at", "lso"]
    assert run([*words, "--format", name, "--output", "x"]) == 2
    assert "--format" in capsys.readouterr().err


def test_a_full_temporary_folder_is_said() -> None:
    import errno

    from eoctl.settings.folders import full_disk

    failures = (
        OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
        FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
        RuntimeError("java.io.IOException: No space left on device"),
    )
    for failure in failures:
        said = full_disk(failure)
        assert said is not None
        assert said.exit_status == 3
        assert "no space is left" in said.sentence
    assert full_disk(FileNotFoundError(2, "No such file")) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("words", [["lso"], ["lso", "--watch", "1"], ["check"], ["state", "show"]])
def test_a_signal_ends_every_command_alike(words: list[str], number: signal.Signals) -> None:
    """One that waits for a broker that never answers, or for whoever writes its file."""
    with socket.socket() as silent, tempfile.TemporaryDirectory() as folder:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        if words[0] == "state":
            os.mkfifo(f"{folder}/manifest.json")
            words = [*words, folder]
        else:
            words = ["--bootstrap-server", server, *words, "--timeout", "60s"]
        process = subprocess.Popen(
            [sys.executable, "-m", "eoctl", *words],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"EOCTL_STATE_DIR": folder},
            text=True,
        )
        if words[0] == "state":
            with Path(folder, "manifest.json").open("w"):  # it has begun to read
                process.send_signal(number)
                said = process.communicate(timeout=60)[1]
        else:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                process.send_signal(number)
                said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said == "eoctl: interrupted\n"


ENDING = """
import os, sys, time
from eoctl.__main__ import main
class Slow:
    def __del__(self, say=os.write, wait=time.sleep):
        say(1, b"ending")
        wait(1)
sys.kept = Slow()
sys.argv = ["eoctl", "--help"]
main()
"""


def test_a_signal_to_a_command_that_is_done_changes_no_status() -> None:
    """Python gives signals their default meaning before it takes its modules apart."""
    process = subprocess.Popen([sys.executable, "-c", ENDING], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = b""
    while not said.endswith(b"ending"):
        said += os.read(process.stdout.fileno(), 4096)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("no such topic", "orders:3: no such topic"),
        ("orders:3 pid 7 is open", "orders:3 pid 7 is open"),
        ("orders:3: it is open", "orders:3: it is open"),
        ("orders:30 is open", "orders:3: orders:30 is open"),
    ],
)
def test_a_sentence_names_its_place_once(what: str, sentence: str) -> None:
    assert EoctlError(what, where="orders:3").sentence == sentence
