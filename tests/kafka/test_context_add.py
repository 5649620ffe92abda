"""`context add` as a person answers it on a terminal, and as a script gives it by options."""

import sys
import tomllib
from pathlib import Path

import pexpect
import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.command import EOCTL, environment, eoctl
from tests.kafka.conftest import MakeTopic


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An empty home's environment: the config file is in it."""
    return environment(
        XDG_CONFIG_HOME=str(tmp_path / "config"), EOCTL_CONFIG=None, NO_COLOR="1", TERM="dumb"
    )


def saved(env: dict[str, str]) -> dict[str, object]:
    """The contexts of the config file, as TOML says them."""
    file = Path(env["XDG_CONFIG_HOME"], "eoctl", "config.toml")
    contexts: dict[str, object] = tomllib.loads(file.read_text())["contexts"]
    return contexts


def test_by_options(lab1: Lab, topic: MakeTopic, env: dict[str, str]) -> None:
    topic(lab1)  # without one, what is allowed on topics is not known
    server = lab1.bootstrap_servers
    words = ("context", "add", "one", "--bootstrap-server", server, "--read-only", "-o", "json")
    ran = eoctl(*words, env=env)
    assert ran.status == 0, ran.stderr
    allowed = {r["check"] for r in ran.rows if r["kind"] == "command" and r["sees"]}
    assert {"lso", "producers"} <= allowed
    assert {"Java", "jars", "terminal", "clock", "cache", "locks", "journal"} <= {
        r["check"] for r in ran.rows if r["kind"] == "machine"
    }
    assert saved(env) == {"one": {"read_only": True, "bootstrap_servers": server}}
    assert eoctl("lso", "--context", "one", env=env).status == 0
    again = eoctl(*words, env=env)
    assert (again.status, "there is a context 'one' already" in again.stderr) == (2, True)
    # a second one leaves the first, and comments, as they are
    file = Path(env["XDG_CONFIG_HOME"], "eoctl", "config.toml")
    file.write_text("# mine\n" + file.read_text().rstrip("\n"))
    before = file.read_text()
    odd = 'a"b\\c\u00e9'
    more = ("--no-test", "--bootstrap-server", "x:1", "-X", f"client.id={odd}")
    assert eoctl("context", "add", "two.b", *more, env=env).status == 0
    assert file.read_text().startswith(before + "\n\n")
    assert saved(env)["two.b"] == {"properties": {"client.id": odd}, "bootstrap_servers": "x:1"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_the_environment_names_is_begun(lab1: Lab, tmp_path: Path) -> None:
    file = tmp_path / "new" / "eoctl.toml"
    env = environment(EOCTL_CONFIG=str(file))
    words = ("context", "add", "one", "--bootstrap-server", lab1.bootstrap_servers)
    assert eoctl("lso", "--context", "one", env=env).status == 2
    ran = eoctl(*words, env=env)
    assert ran.status == 0, ran.stderr
    assert eoctl("lso", "--context", "one", env=env).status == 0


def test_what_is_refused(lab1: Lab, env: dict[str, str]) -> None:
    server = ("--bootstrap-server", lab1.bootstrap_servers)
    for words, sentence in (
        (("a b", *server), "cannot be the name of a context"),
        (("n",), "stdin is not a terminal to ask on"),
        (
            ("n", *server, "-X", "sasl.password=hunter2"),
            "would be in the config file as plain text",
        ),
    ):
        ran = eoctl("context", "add", *words, env=env)
        assert (ran.status, sentence in ran.stderr) == (2, True), ran.stderr
        assert "hunter2" not in ran.stderr
    gone = eoctl("context", "add", "n", "--bootstrap-server", "127.0.0.1:1", env=env)
    assert (gone.status, "nothing was saved" in gone.stderr) == (5, True)
    assert not Path(env["XDG_CONFIG_HOME"]).exists()
    clear = ("-X", "sasl.password=hunter2", "--secrets-in-clear", "--no-test")
    assert eoctl("context", "add", "n", *server, *clear, env=env).status == 0
    assert "hunter2" in str(saved(env))


def test_on_a_terminal(secure_lab: Lab, env: dict[str, str]) -> None:
    """A user with a password by SCRAM over TLS: the password goes to a file of its own."""
    properties = secure_lab.client_properties("viewer")
    mechanism = properties["sasl.mechanism"]
    words = [*EOCTL[1:], "context", "add", "safe"]
    shell = pexpect.spawn(
        sys.executable, words, env=env, encoding="utf-8", dimensions=(60, 160), timeout=60
    )
    for question, answer in (
        ("Servers", properties["bootstrap.servers"]),
        ("Security", "nonsense"),
        ("one of none, tls", "password+tls"),
        ("CA", properties["ssl.ca.location"]),
        ("Mechanism", mechanism),
        ("User name", properties["sasl.username"]),
        ("Password: env:NAME", ""),
        ("not shown", properties["sasl.password"]),
        ("Read-only", "yes"),
    ):
        shell.expect_exact(question)
        shell.sendline(answer)
    shell.expect(pexpect.EOF)
    printed = str(shell.before)
    shell.close()
    assert shell.exitstatus == 0, printed
    assert properties["sasl.password"] not in printed
    assert "eoctl txn fence" in printed
    config = Path(env["XDG_CONFIG_HOME"], "eoctl")
    text = (config / "config.toml").read_text()
    assert properties["sasl.password"] not in text
    kept = config / "safe.password"
    assert kept.read_text() == properties["sasl.password"] + "\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    ran = eoctl("context", "test", "--context", "safe", "-o", "json", env=env)
    fence = next(r for r in ran.rows if r["check"] == "txn fence")
    assert (ran.status, fence["sees"]) == (0, False)  # as for that user in test_rights
