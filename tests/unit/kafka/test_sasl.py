"""SASL conversations and token sources without a broker: RFC vectors, hostile answers, commands."""

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.oauth import TokenCommand, UnsecuredToken
from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.connection.sasl import Exchange, OAuthBearer, Plain, Scram, Token
from recovery.errors import UsageError

# RFC 7677 section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(user: str = "user", password: str = "pencil") -> Exchange:
    return Scram("SCRAM-SHA-256", user, Secret(password)).conversation(NONCE)


def test_scram_follows_the_rfc() -> None:
    talk = scram()
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert talk.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        talk.send(SERVER_FINAL)


def test_scram_escapes_the_user_name() -> None:
    assert next(scram("a=b,c")) == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "final",
    [b"v=" + base64.b64encode(bytes(32)), b"", b"x=1", b"v=\xff", SERVER_FINAL[:-2] + b"A="],
)
def test_a_broker_that_does_not_know_the_password_is_found_out(final: bytes) -> None:
    talk = scram()
    next(talk)
    talk.send(SERVER_FIRST)
    with pytest.raises(WireError, match="could not prove"):
        talk.send(final)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (SERVER_FIRST.replace(b"r=r", b"r=s"), "a nonce that is not ours"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4,095 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=2000000000"), "2,000,000,000 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "for 1 SCRAM iteration,"),
        (SERVER_FIRST.replace(b"i=4096", b"i=x"), "cannot be read"),
        (SERVER_FIRST.replace(b"s=W", b"s=*"), "cannot be read"),
        (b"e=unknown-user", "the broker refused: unknown-user"),
        (b"\xff\xfe", "a nonce that is not ours"),
    ],
)
def test_answers_that_scram_does_not_accept(first: bytes, why: str) -> None:
    talk = scram()
    next(talk)
    with pytest.raises(WireError) as caught:
        talk.send(first)
    assert caught.value.error == "AUTHENTICATION_FAILED"
    assert why in caught.value.detail


def test_plain_is_one_message() -> None:
    talk = asyncio.run(Plain("älice", Secret("p=w")).exchange(Deadline(1)))
    assert next(talk) == b"\0\xc3\xa4lice\0p=w"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_oauthbearer_says_token_and_extensions() -> None:
    source = UnsecuredToken("eve", 60)
    talk = asyncio.run(OAuthBearer(source, (("team", "x"),)).exchange(Deadline(1)))
    head, middle, team, *end = next(talk).split(b"\x01")
    assert (head, team, end) == (b"n,,", b"team=x", [b"", b""])
    token = middle.removeprefix(b"auth=Bearer ").decode()
    header, claims, signature = token.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert found["sub"] == "eve"
    assert found["exp"] - found["iat"] == 60
    # RFC 7628 section 3.2.2: one byte after the broker's reason, then its refusal
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(WireError, match="refused the token: invalid_token"):
        talk.send(b"")


# -- token_command -----------------------------------------------------------------------------

SOON = "2100-01-01T00:00:00Z"


def command(script: str, *arguments: str) -> TokenCommand:
    return TokenCommand((sys.executable, "-c", script, *arguments))


def token_of(source: TokenCommand, seconds: float = 5) -> Token:
    return asyncio.run(source.token(Deadline(seconds)))


@pytest.mark.parametrize(
    "printed",
    [
        {"token": "abc", "expirationTimestamp": SOON},
        {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "abc", "expirationTimestamp": SOON},
        },
    ],
)
def test_a_command_prints_a_token(printed: object) -> None:
    found = token_of(command(f"print({json.dumps(printed)!r})"))
    assert found.text.reveal() == "abc"
    assert found.expires == 4102444800  # 2100-01-01 in epoch seconds
    assert "abc" not in repr(found)


def test_a_fresh_token_is_kept_and_a_stale_one_is_not(tmp_path: Path) -> None:
    script = (
        "import sys, json, datetime as d; f = open(sys.argv[1], 'a'); f.write('x'); f.close();"
        "end = d.datetime.now(d.UTC) + d.timedelta(seconds=float(sys.argv[2]));"
        "print(json.dumps({'token': 't', 'expirationTimestamp': end.isoformat()}))"
    )

    async def two(source: TokenCommand, pause: float) -> None:
        await asyncio.gather(source.token(Deadline(5)), source.token(Deadline(5)))
        await asyncio.sleep(pause)
        await source.token(Deadline(5))

    for life, pause, runs in (("60", 0.0, 1), ("2", 2.0, 2)):
        log = tmp_path / life
        asyncio.run(two(command(script, str(log), life), pause))
        assert len(log.read_text()) == runs


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('log in first')", "ended with status 1"),
        ("print('hello')", "printed no JSON with a token"),
        ("print('[1]')", "printed no JSON with a token"),
        ('print(\'{"token": "abc", "expirationTimestamp": 5}\')', "not RFC 3339"),
    ],
)
def test_a_command_that_fails(script: str, said: str) -> None:
    with pytest.raises(WireError) as caught:
        token_of(command(script))
    assert caught.value.error == "AUTHENTICATION_FAILED"
    assert said in caught.value.detail


def test_a_failing_command_does_not_give_its_token_away() -> None:
    token = "aaaaaaaaaaaa.bbbbbbbbbbbb.cccc"
    printed = json.dumps({"token": "opaque-token-1", "expirationTimestamp": SOON})
    script = (
        f"import sys; print({printed!r});"
        f"sys.exit('refresh of opaque-token-1 failed, was Bearer {token}')"
    )
    with pytest.raises(WireError) as caught:
        token_of(command(script))
    # its own words may hold any secret, in any shape: none of them is repeated
    assert "refresh of" not in caught.value.detail
    assert not any(s in str(caught.value) for s in (token, "opaque-token-1"))


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "pid"
    script = (
        "import os, subprocess, sys, time; p = subprocess.Popen(['sleep', '60']);"
        "open(sys.argv[1], 'w').write(str(p.pid)); time.sleep(60)"
    )
    before = time.monotonic()
    with pytest.raises(WireError, match=r"did not end|in time"):
        token_of(command(script, str(log)), seconds=1.5)
    assert time.monotonic() - before < 3
    stat = Path("/proc", log.read_text(), "stat")
    for _ in range(50):
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the command's child is still running")


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(WireError, match="cannot be started: No such file or directory"):
        token_of(TokenCommand(("/no/such/command",)))


# -- Amazon MSK --------------------------------------------------------------------------------


def test_msk_tokens_are_signed_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shape and lifetime as AWS documents them for MSK IAM's OAUTHBEARER tokens."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    found = client_settings(
        {
            "bootstrap.servers": "b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        }
    )
    assert found.sasl is not None
    assert found.sasl.name == "OAUTHBEARER"
    assert isinstance(found.sasl, OAuthBearer)
    token = found.sasl.source.token_now(20)
    text = token.text.reveal()
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    asked = parse_qs(url.query)
    assert (url.scheme, url.hostname) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("AKIAEXAMPLE/")
    assert asked["X-Amz-Expires"] == ["900"]
    assert 880 < token.expires - time.time() <= 900


def test_msk_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(UsageError, match=r"pip install 'eoctl\[msk\]'"):
        client_settings(
            {
                "bootstrap.servers": "b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com:9098",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "AWS_MSK_IAM",
            }
        )
