"""Which cluster a command means, what it may do there, and that no secret is repeated.

What is expected follows the table of precedence in docs/interface.md, written out case by case.
"""

import json
from pathlib import Path

import pytest
from rich.pretty import pretty_repr

from eoctl.cli.options import Connection
from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.property_names import SECRET_KEY
from eoctl.settings.context import (
    Connect,
    ContextFile,
    cache_dir,
    config_path,
    contexts,
    load_config,
    resolve,
    state_dir,
)
from recovery.errors import UsageError

SECRET = "hunter2"
CONFIG = """
context = "from-file"
[contexts.from-file]
bootstrap_servers = "file:1"
[contexts.used]
bootstrap_servers = "used:1"
[contexts.from-env]
bootstrap_servers = "env:1"
[contexts.from-flag]
bootstrap_servers = "flag:1"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and nothing of ours in the environment."""
    for name in ("CONFIG", "STATE_DIR", "CACHE_DIR", "CONTEXT", "BOOTSTRAP_SERVER"):
        monkeypatch.delenv(f"EOCTL_{name}", raising=False)
    monkeypatch.delenv("EOCTL_COMMAND_CONFIG", raising=False)
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / ".config/eoctl/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def use(home: Path, name: object) -> None:
    """What `context use` leaves behind."""
    path = home / ".local/state/eoctl/context"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"context": name}))


def lab(home: Path, content: bytes, name: str = "lab") -> None:
    """What `lab up` leaves behind."""
    path = home / f".local/state/eoctl/contexts/{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def servers(asked: Connect = Connect()) -> str:
    return resolve(asked).properties["bootstrap.servers"]


def test_flag_over_environment_over_choice_over_file_over_lab(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab(home, b'{"bootstrap_servers": "lab:1"}')
    assert servers() == "lab:1"
    write(home, CONFIG)
    assert servers() == "file:1"
    use(home, "used")
    assert servers() == "used:1"
    monkeypatch.setenv("EOCTL_CONTEXT", "from-env")
    assert servers() == "env:1"
    assert servers(Connect(context="from-flag")) == "flag:1"


@pytest.mark.parametrize(
    ("asked", "environment", "expected", "argv"),
    [
        (Connect(bootstrap_server="b:1"), {}, "b:1", ["--bootstrap-server", "b:1"]),
        # a flag that names a cluster beats every context that was not named by a flag
        (
            Connect(bootstrap_server="b:1"),
            {"EOCTL_CONTEXT": "from-env"},
            "b:1",
            ["--bootstrap-server", "b:1"],
        ),
        (Connect(), {"EOCTL_BOOTSTRAP_SERVER": "e:1"}, "e:1", ["--bootstrap-server", "e:1"]),
        (
            Connect(),
            {"EOCTL_BOOTSTRAP_SERVER": "e:1", "EOCTL_CONTEXT": "from-env"},
            "e:1",
            ["--context", "from-env", "--bootstrap-server", "e:1"],
        ),
        # a context by flag is not sent elsewhere by the environment
        (
            Connect(context="from-flag"),
            {"EOCTL_BOOTSTRAP_SERVER": "e:1"},
            "flag:1",
            ["--context", "from-flag"],
        ),
        (
            Connect(context="from-flag", bootstrap_server="b:1"),
            {},
            "b:1",
            ["--context", "from-flag", "--bootstrap-server", "b:1"],
        ),
        (
            Connect(context="from-flag", properties=("bootstrap.servers=x:1",)),
            {},
            "x:1",
            ["--context", "from-flag", "-X", "bootstrap.servers=x:1"],
        ),
    ],
)
def test_several_at_once(
    asked: Connect,
    environment: dict[str, str],
    expected: str,
    argv: list[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(home, CONFIG)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = resolve(asked)
    assert found.properties["bootstrap.servers"] == expected
    assert list(found.argv) == argv
    for name in environment:  # the commands that are printed mean the same cluster elsewhere
        monkeypatch.delenv(name)
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    again = resolve(
        Connect(
            options.get("--context"),
            options.get("--bootstrap-server"),
            properties=(options["-X"],) if "-X" in options else (),
        )
    )
    assert again.properties["bootstrap.servers"] == expected


def test_the_words_over_the_contexts_own_over_its_file(home: Path) -> None:
    file = home / "client.properties"
    file.write_text("client.id=a\nsasl.mechanism=PLAIN\nsecurity.protocol=SSL\n")
    other = home / "other.properties"
    other.write_text("client.id=c\n")
    write(
        home,
        f'[contexts.p]\nbootstrap_servers = "p:1"\ncommand_config = "{file}"\n'
        'properties = { "client.id" = "b", "sasl.mechanism" = "SCRAM-SHA-256" }\n',
    )
    p = resolve(Connect(context="p")).properties
    assert (p["client.id"], p["sasl.mechanism"]) == ("b", "SCRAM-SHA-256")
    assert p["security.protocol"] == "SSL"
    p = resolve(Connect(context="p", command_config=str(other))).properties
    assert p["client.id"] == "c"
    asked = Connect(context="p", command_config=str(other), properties=(" client.id = d=e ",))
    assert resolve(asked).properties["client.id"] == "d=e"


def test_what_a_context_forbids_stays_forbidden_at_another_address(home: Path) -> None:
    write(home, '[contexts.p]\nbootstrap_servers = "p:1"\nread_only = true\nprotected = true\n')
    for asked in (
        Connect(context="p"),
        Connect(context="p", bootstrap_server="q:1"),
        Connect(context="p", properties=("bootstrap.servers=q:1",)),
    ):
        found = resolve(asked)
        assert (found.read_only, found.protected, found.title) == (True, True, "p")


def test_a_chosen_context_that_is_gone_is_not_replaced_by_another(home: Path) -> None:
    write(home, CONFIG)
    use(home, "gone")
    with pytest.raises(UsageError, match=r"no context 'gone'; contexts known: from-file, used"):
        resolve(Connect())


@pytest.mark.parametrize("content", [None, 5, ["used"], "", {"a": 1}])
def test_a_damaged_choice_is_none(content: object, home: Path) -> None:
    write(home, CONFIG)
    use(home, content)
    assert servers() == "file:1"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"{", b"[]", b'{"bootstrap_servers": 5}'])
def test_a_damaged_lab_hides_no_other(content: bytes, home: Path) -> None:
    lab(home, content, "lab-a")
    lab(home, b'{"bootstrap_servers": "lab:1"}')
    assert list(contexts(load_config())) == ["lab"]
    assert servers() == "lab:1"


def test_a_context_of_the_file_is_not_taken_over_by_a_lab(home: Path) -> None:
    write(home, '[contexts.lab]\nbootstrap_servers = "mine:1"\n')
    lab(home, b'{"bootstrap_servers": "lab:1"}')
    assert servers(Connect(context="lab")) == "mine:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("context = ", "not valid TOML"),
        (
            "[contexts.p]\nbootstrap_server = 'hunter2'",
            "contexts.p.bootstrap_server: there is",
        ),
        ("[contexts.p]\nread_only = 'hunter2'", "contexts.p.read_only: "),
        ("[contexts.p.properties]\nsasl.password = 'hunter2'", "contexts.p.properties.sasl: "),
        ("[check]\nheld_records = 'hunter2'", "check.held_records: "),
        ("colour = 1", "colour: there is no such"),
    ],
)
def test_a_wrong_config_is_one_sentence_with_its_key_and_no_value(
    text: str, said: str, home: Path
) -> None:
    path = write(home, text)
    with pytest.raises(UsageError) as caught:
        resolve(Connect(bootstrap_server="b:1"))
    assert caught.value.sentence.startswith(f"{path}: {said}")
    assert "\n" not in caught.value.sentence
    assert SECRET not in caught.value.sentence


def test_a_config_that_cannot_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(home, "")
    path.write_bytes(b"context = '\xff'")
    with pytest.raises(UsageError, match="cannot be read"):
        load_config()
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load_config()
    monkeypatch.setenv("EOCTL_CONFIG", str(home / "none.toml"))
    with pytest.raises(
        UsageError, match="no such file; EOCTL_CONFIG names it; `eoctl context add NAME` begins it"
    ):
        load_config()
    monkeypatch.delenv("EOCTL_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "none"))
    assert load_config().contexts == {}


def test_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOME")
    assert config_path() is None
    assert servers(Connect(bootstrap_server="b:1")) == "b:1"
    with pytest.raises(UsageError, match="no cluster is named"):
        resolve(Connect())
    with pytest.raises(UsageError, match=r"no HOME .* set HOME, XDG_STATE_HOME or EOCTL_STATE_DIR"):
        state_dir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("EOCTL_CACHE_DIR", str(tmp_path / "c"))
    assert state_dir() == tmp_path / "eoctl"
    assert cache_dir() == tmp_path / "c"


SECRETS = (
    "sasl.password",
    "SASL.PASSWORD",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.key.pem",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    " sasl.password ",
    "token_command",
)


@pytest.mark.parametrize("key", SECRETS)
def test_no_secret_in_what_is_printed(key: str, home: Path) -> None:
    write(
        home, f'[contexts.p]\nbootstrap_servers = "p:1"\nproperties = {{ "{key}" = "{SECRET}" }}\n'
    )
    assert SECRET not in repr(load_config())
    asked = Connect(context="p", properties=(f"{key}={SECRET}",))
    found = resolve(asked)
    assert found.properties[key.strip()] == SECRET
    assert SECRET not in " ".join(found.argv)
    assert SECRET not in repr(found) + repr(asked)
    assert SECRET not in pretty_repr([found, asked, found.access, Secret(SECRET)])
    assert SECRET not in repr(Connection(x=[f"{key}={SECRET}"]))
    assert SECRET not in repr(ContextFile(properties={key: SECRET}))


def test_a_relative_command_config_lies_beside_the_config_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cron starts eoctl in another folder; what the command line names is found from there."""
    write(home, '[contexts.p]\nbootstrap_servers = "p:1"\ncommand_config = "c/p.properties"\n')
    beside = home / ".config/eoctl/c"
    beside.mkdir()
    (beside / "p.properties").write_text("client.id=beside\n")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "c").mkdir(parents=True)
    (elsewhere / "c" / "p.properties").write_text("client.id=here\n")
    monkeypatch.chdir(elsewhere)
    assert resolve(Connect(context="p")).properties["client.id"] == "beside"
    asked = Connect(bootstrap_server="p:1", command_config="c/p.properties")
    assert resolve(asked).properties["client.id"] == "here"


@pytest.mark.parametrize("key", SECRETS)
def test_one_pattern_hides_secrets_everywhere(key: str) -> None:
    from eoctl.kafka.connection.properties import Properties

    assert SECRET not in repr(Properties({key: SECRET}))


@pytest.mark.parametrize("value", ["env:KAFKA_PASSWORD", "file:/run/secrets/kafka"])
def test_where_a_secret_is_kept_is_none(value: str) -> None:
    asked = Connect(bootstrap_server="b:1", properties=(f"sasl.password={value}",))
    argv = resolve(asked).argv
    assert argv == ("--bootstrap-server", "b:1", "-X", f"sasl.password={value}")


@pytest.mark.parametrize("value", ["env:", "file:", "environment", "xenv:A"])
def test_what_only_looks_like_a_place_is_a_secret(value: str) -> None:
    asked = Connect(bootstrap_server="b:1", properties=(f"sasl.password={value}",))
    assert resolve(asked).argv == ("--bootstrap-server", "b:1")


@pytest.mark.parametrize("key", ["ssl.key.location", "ssl.keystore.location", "client.id"])
def test_what_is_no_secret_is_in_the_commands_that_are_printed(key: str) -> None:
    assert not SECRET_KEY.search(key)
    found = resolve(Connect(bootstrap_server="b:1", properties=(f"{key}=x",)))
    assert found.argv[2:] == ("-X", f"{key}=x")


def test_a_pair_without_its_sign_is_not_repeated() -> None:
    for text in (f"sasl.password:{SECRET}", f"={SECRET}", " = "):
        with pytest.raises(UsageError) as caught:
            resolve(Connect(bootstrap_server="b:1", properties=(text,)))
        assert "-X" in caught.value.sentence
        assert SECRET not in caught.value.sentence


def test_several_contexts(home: Path) -> None:
    write(home, CONFIG)
    named = Connection(context="used, from-env,").several(False)
    assert [c.name for c in named] == ["used", "from-env"]
    assert [c.name for c in Connection().several(True)] == [
        "from-file",
        "used",
        "from-env",
        "from-flag",
    ]
    for text in (",", " , "):
        with pytest.raises(UsageError, match="no context is named"):
            Connection(context=text).several(False)
    with pytest.raises(UsageError, match="takes one context"):
        Connection(context="used,from-env").one()


@pytest.mark.parametrize("other", [{"context": "used,from-env"}, {}])
def test_one_address_is_not_asked_under_several_names(other: dict[str, str], home: Path) -> None:
    """It would report one cluster as many."""
    write(home, CONFIG)
    for more in ({"bootstrap_server": "b:1"}, {"x": ["bootstrap.servers=b:1"]}):
        with pytest.raises(UsageError, match="several contexts"):
            Connection(**other, **more).several(not other)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["flag", "environment", "-X", "file"])
def test_a_login_among_the_servers_is_refused_and_not_repeated(
    where: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = f"b0:1,user:{SECRET}@b1:9092"
    asked = Connect()
    if where == "flag":
        asked = Connect(bootstrap_server=servers)
    elif where == "environment":
        monkeypatch.setenv("EOCTL_BOOTSTRAP_SERVER", servers)
    elif where == "-X":
        asked = Connect(properties=(f"bootstrap.servers={servers}",))
    else:
        (home / "client.properties").write_text(f"bootstrap.servers={servers}\n")
        asked = Connect(command_config=str(home / "client.properties"))
    with pytest.raises(UsageError, match="a login does not belong there") as refused:
        resolve(asked)
    assert SECRET not in refused.value.sentence


def test_context_show_hides_the_proxys_login(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eoctl.cli.commands.context import show
    from eoctl.cli.options import Format

    for login in (f"socks5h://user:{SECRET}@", f"user:{SECRET}@", f"a@b:{SECRET}@", ""):
        text = f'[contexts.p]\nbootstrap_servers = "b:1"\nsocks5 = "{login}proxy:1080"\n'
        write(home, text)
        show(Connection(context="p"), Format(output="json"))
        out = capsys.readouterr().out
        assert "proxy:1080" in out
        assert SECRET not in out


@pytest.mark.parametrize("chosen_by", ["environment", "use", "file"])
@pytest.mark.parametrize("guard", ["read_only", "protected"])
def test_a_guard_that_an_option_drops_says_so(
    chosen_by: str,
    guard: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f'[contexts.ro]\nbootstrap_servers = "b:1"\n{guard} = true\n'
    if chosen_by == "environment":
        monkeypatch.setenv("EOCTL_CONTEXT", "ro")
    elif chosen_by == "use":
        use(home, "ro")
    else:
        text = 'context = "ro"\n' + text
    write(home, text)
    word = guard.replace("_", "-")
    said = f"warning: context ro is {word}, but --bootstrap-server names a cluster without it"
    assert not getattr(Connection(bootstrap_server="b:1").one(), guard)
    assert said in capsys.readouterr().err
    kept = Connection(context="ro", bootstrap_server="b:1").one()
    assert getattr(kept, guard)
    assert capsys.readouterr().err == ""


def test_certificates_that_are_not_checked_are_warned_of_each_time(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        Connection(bootstrap_server="b:1", x=["enable.ssl.certificate.verification=false"]).one()
        assert "the brokers' certificates are not checked" in capsys.readouterr().err


def test_a_context_may_show_no_records(home: Path) -> None:
    """Which holds only with the context: another way to its servers is warned of."""
    write(home, CONFIG + "show_records = false\n")
    assert not resolve(Connect("from-flag")).show_records
    assert resolve(Connect("used")).show_records
    assert resolve(Connect(bootstrap_server="flag:1")).show_records
    write(home, CONFIG.replace('"from-file"', '"from-flag"', 1) + "show_records = false\n")
    [warning] = resolve(Connect(bootstrap_server="flag:1")).warnings
    assert "context from-flag is set to show no records, but --bootstrap-server" in warning


def test_a_registry_login_is_a_secret() -> None:
    for key in ("basic.auth.user.info", "schema.registry.basic.auth.user.info"):
        assert SECRET_KEY.search(key)
    assert not SECRET_KEY.search("schema.registry.url")
