"""Client properties of both kinds: reading files, giving them meaning, keeping secrets secret."""

import shlex
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from eoctl.kafka.connection.mechanisms import parse_jaas
from eoctl.kafka.connection.oauth import TokenCommand, UnsecuredToken, msk_region
from eoctl.kafka.connection.oidc import ClientCredentials
from eoctl.kafka.connection.properties import (
    ClientSettings,
    client_settings,
    librdkafka_properties,
    read_properties,
)
from eoctl.kafka.connection.sasl import OAuthBearer, Plain, Scram
from eoctl.lab.certificates import Authority, write_certificate, write_key, write_keystore
from recovery.errors import Exit, UsageError

PASSWORD = "s3cret-of-alice"
MODULE = "org.apache.kafka.common.security."

# -- files -------------------------------------------------------------------------------------

TRICKY = r"""# comment with \
! another = one
   bootstrap.servers = b1:9092, b2:9092
client.id:colon
group.id blank separated value
empty.one=
empty.two
 key\ with\ blank\:and\=signs  =  v=a:l\e
path=C:\\kafka\\new\tline\nend\q
unicode=\u00e4\u20AC \ud83d\ude00 é
twice=first
twice=second
long = one, \
       two, \
   ! not a comment, \

after.blank=x
even.backslashes=end\\
tab	separated
trailing = blanks kept 	"""


def test_a_java_file_means_what_java_reads() -> None:
    # what java.util.Properties (OpenJDK 17) made of the same text
    assert read_properties(TRICKY + "\nlast=a\\\r\n  b\rcr=1", "f") == {
        "after.blank": "x",
        "bootstrap.servers": "b1:9092, b2:9092",
        "client.id": "colon",
        "cr": "1",
        "empty.one": "",
        "empty.two": "",
        "even.backslashes": "end\\",
        "group.id": "blank separated value",
        "key with blank:and=signs": "v=a:le",
        "last": "ab",
        "long": "one, two, ! not a comment, ",
        "path": "C:\\kafka\\new\tline\nendq",
        "tab": "separated",
        "trailing": "blanks kept \t",
        "twice": "second",
        "unicode": "ä€ 😀 é",
    }


def test_a_librdkafka_file_has_no_escapes() -> None:
    text = "bootstrap.servers=b:1\n# c\nsasl.username = DOM\\alice\nsasl.password=a\\u0041=b\\\\\n"
    assert read_properties(text, "f") == {
        "bootstrap.servers": "b:1",
        "sasl.username": "DOM\\alice",
        "sasl.password": "a\\u0041=b\\\\",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=1\nb=\\u12x", "f, line 2: a \\u escape needs four hexadecimal digits"),
        (f"sasl.username=a\n{PASSWORD}\n", "f, line 2: this line is not key=value"),
    ],
)
def test_a_broken_file_is_refused_by_line_and_without_its_text(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_properties(text, "f")
    assert caught.value.sentence.startswith(said)
    assert PASSWORD not in caught.value.sentence


# -- sasl.jaas.config --------------------------------------------------------------------------

PLAIN_MODULE = MODULE + "plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("rest", "options"),
    [  # what org.apache.kafka.common.security.JaasContext (4.3.1) made of the same lines
        (
            r'required username="alice" password="pa\"ss\\word";',
            {"username": "alice", "password": 'pa"ss\\word'},
        ),
        (
            r"required username='alice' password='it\'s';",
            {"username": "alice", "password": "it's"},
        ),
        ("required username=alice password=secret;", {"username": "alice", "password": "secret"}),
        (
            r'required username="alice" password="a\tb\061\u0041\x";',
            {"username": "alice", "password": "a\tb1u0041x"},
        ),
        (
            'required username="a=b;c" password="x // y /* z */" ; ',
            {"username": "a=b;c", "password": "x // y /* z */"},
        ),
        ('required username = "alice" password ="x";', {"username": "alice", "password": "x"}),
        ('REQUIRED username="alice" password="";', {"username": "alice", "password": ""}),
        ('required user-name="alice" pass.word="x";', {"user-name": "alice", "pass.word": "x"}),
        ('required username="alice" username="bob";', {"username": "bob"}),
        ("required;", {}),
        (
            r'required username="ä€😀" password="\377\08";',
            {"username": "ä€😀", "password": "ÿ\x008"},
        ),
    ],
)
def test_jaas_lines_mean_what_kafka_reads(rest: str, options: dict[str, str]) -> None:
    module = parse_jaas(f"{PLAIN_MODULE} {rest}")
    assert (module.name, module.options) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "why"),
    [  # each refused by JaasContext too
        (f'{PLAIN_MODULE} required username="a" password="{PASSWORD}"', "semicolon"),
        (f'{PLAIN_MODULE} required username="a" password="{PASSWORD}" // end', "semicolon"),
        (f'{PLAIN_MODULE} username="a" password="{PASSWORD}";', "not `required`"),
        (f'{PLAIN_MODULE} required password="{PASSWORD}"; a.B required;', "more than one"),
        (f'{PLAIN_MODULE} required password="{PASSWORD};', "quotation mark"),
        (f"{PLAIN_MODULE} required password= {PASSWORD} x;", "name="),
        ("", "semicolon"),
    ],
)
def test_a_broken_jaas_line_is_refused_without_its_text(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_jaas(text)
    assert why in caught.value.sentence
    assert PASSWORD not in caught.value.sentence


# -- meaning -----------------------------------------------------------------------------------


def settings(properties: Mapping[str, str], socks5: str | None = None) -> ClientSettings:
    return client_settings({"bootstrap.servers": "b:9092", **properties}, socks5=socks5)


def sasl(mechanism: str, **more: str) -> dict[str, str]:
    dotted = {key.replace("_", "."): value for key, value in more.items()}
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **dotted}


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b , a:1,", (("a", 1), ("b", 9092))),
        ("[::1]:9093,[fe80::1%eth0]", (("::1", 9093), ("fe80::1%eth0", 9092))),
        ("SASL_SSL://a.example:9094", (("a.example", 9094),)),
    ],
)
def test_bootstrap_servers(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert settings({"bootstrap.servers": text}).bootstrap_servers == servers


@pytest.mark.parametrize(
    "text", ["", " , ", "::1:9092", "a:0", "a:70000", "a:b", "[::1", "a b:1:2"]
)
def test_bootstrap_servers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        settings({"bootstrap.servers": text})


def test_properties_of_producers_and_consumers_are_no_business_of_ours() -> None:
    found = settings({"group.id": "g", "acks": "all", "whatever.else": "1"})
    assert found == settings({})
    assert found.protocol == "PLAINTEXT"
    assert found.request_timeout_ms == 3000
    assert settings({"request.timeout.ms": "9000"}).request_timeout_ms == 9000


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "SASL"}, "security.protocol: 'SASL' is not a protocol of Kafka"),
        ({"security.protocoll": "SSL"}, "did you mean security.protocol?"),
        ({"ssl.truststore.locaton": "x"}, "did you mean ssl.truststore.location?"),
        ({"sasl.pasword": PASSWORD}, "did you mean sasl.password?"),
        ({"ssl.crl.location": "x"}, "ssl.crl.location: this property is not supported"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms: '0' is not a number"),
        (sasl("SCRAM-SHA-1"), "sasl.mechanism: 'SCRAM-SHA-1' is not supported"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: it is missing"),
        (sasl("PLAIN", sasl_username="alice"), "sasl.password: it is missing"),
        (sasl("PLAIN", sasl_password=PASSWORD), "sasl.username: it is missing"),
        (
            sasl("PLAIN", sasl_jaas_config=f'{MODULE}scram.ScramLoginModule required a="b";'),
            "ScramLoginModule does not belong to sasl.mechanism PLAIN",
        ),
        (sasl("OAUTHBEARER"), "nothing says where the OAUTHBEARER token comes from"),
        (
            sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="http://idp/token"),
            "a client secret is sent over https:// only",
        ),
        (sasl("AWS_MSK_IAM"), "the AWS region is not known; set AWS_REGION"),
    ],
)
def test_bad_properties_get_one_sentence(
    properties: Mapping[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError) as caught:
        settings(properties)
    assert said in caught.value.sentence
    assert PASSWORD not in caught.value.sentence


@pytest.mark.parametrize(
    "properties",
    [
        sasl("GSSAPI", sasl_kerberos_service_name="kafka"),
        sasl(
            "PLAIN", sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required a=b;"
        ),
    ],
)
def test_kerberos_is_refused_in_these_words(properties: Mapping[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        settings(properties)
    assert caught.value.sentence == (
        "Kerberos (GSSAPI) is not supported; use a SCRAM, mTLS or OAUTHBEARER listener, "
        "or run on bundles"
    )
    assert caught.value.exit_status == Exit.USAGE


def test_both_spellings_mean_the_same() -> None:
    line = f'{MODULE}scram.ScramLoginModule required username="alice" password="{PASSWORD}";'
    java = settings(sasl("SCRAM-SHA-256", sasl_jaas_config=line))
    librdkafka = settings(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    )
    assert java == librdkafka
    assert isinstance(java.sasl, Scram)
    assert java.sasl.password.reveal() == PASSWORD
    assert dict(librdkafka_properties(java)) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }


def test_secrets_come_from_environment_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_USER", "alice")
    (tmp_path / "pw").write_text(PASSWORD + "\n")
    line = f'{PLAIN_MODULE} required username="env:KAFKA_USER" password="file:{tmp_path}/pw";'
    (tmp_path / "jaas").write_text(line)
    for properties in (
        {"sasl.username": "env:KAFKA_USER", "sasl.password": f"file:{tmp_path}/pw"},
        {"sasl.jaas.config": line},
        {"sasl.jaas.config": f"file:{tmp_path}/jaas"},
    ):
        found = settings(sasl("PLAIN") | properties)
        assert isinstance(found.sasl, Plain)
        assert (found.sasl.username, found.sasl.password.reveal()) == ("alice", PASSWORD)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("env:NO_SUCH_THING", "sasl.password: environment variable NO_SUCH_THING is not set"),
        ("file:/no/such", "sasl.password: /no/such cannot be read: No such file or directory"),
    ],
)
def test_a_secret_that_is_not_there(value: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(sasl("PLAIN", sasl_username="a", sasl_password=value))
    assert caught.value.sentence == said


def test_no_text_of_any_value_shows_a_secret() -> None:
    module = f"{MODULE}oauthbearer.OAuthBearerLoginModule"
    line = f'{module} required clientId="c" clientSecret="{PASSWORD}";'
    url = "sasl.oauthbearer.token.endpoint.url"
    for properties in (
        sasl("PLAIN", sasl_username="alice", sasl_password=PASSWORD),
        sasl("SCRAM-SHA-512", sasl_username="alice", sasl_password=PASSWORD),
        sasl("OAUTHBEARER", sasl_jaas_config=line) | {url: "https://idp/token"},
    ):
        read = read_properties("\n".join(f"{k}={v}" for k, v in properties.items()), "f")
        found = settings(read, socks5=f"me:{PASSWORD}@proxy:1080")
        texts = [read, found, found.security, found.security.socks, found.sasl]
        texts.append(librdkafka_properties(settings(read)))
        for value in texts:
            assert PASSWORD not in f"{value!r} {value!s}"


# -- tokens ------------------------------------------------------------------------------------


def token_source(properties: Mapping[str, str]) -> object:
    found = settings(properties).sasl
    assert isinstance(found, OAuthBearer)
    return found.source


def test_client_credentials_in_each_spelling() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
    line = (
        f"{MODULE}oauthbearer.OAuthBearerLoginModule required "
        f'clientId="c" clientSecret="{PASSWORD}" scope="kafka" extension_team="x";'
    )
    spellings: list[dict[str, str]] = [
        {"sasl.jaas.config": line},
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "team=x",
        },
        {  # KIP-1139
            "sasl.oauthbearer.client.credentials.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "team=x",
        },
    ]
    for spelling in spellings:
        found = settings(sasl("OAUTHBEARER") | url | spelling).sasl
        assert isinstance(found, OAuthBearer)
        assert isinstance(found.source, ClientCredentials)
        source = found.source
        assert (source.client_id, source.client_secret.reveal()) == ("c", PASSWORD)
        assert source.scope == "kafka"
        assert found.extensions == (("team", "x"),)


def test_unsecured_tokens_and_token_commands() -> None:
    line = (
        f'{MODULE}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="eve";'
    )
    java = token_source(sasl("OAUTHBEARER", sasl_jaas_config=line))
    librdkafka = token_source(
        sasl("OAUTHBEARER", sasl_oauthbearer_config="scope=a principal=eve lifeSeconds=60")
        | {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
    )
    command = token_source(sasl("OAUTHBEARER") | {"token_command": "get-token --for 'my cluster'"})
    assert isinstance(java, UnsecuredToken)
    assert isinstance(librdkafka, UnsecuredToken)
    assert (java.subject, java.life_seconds) == ("eve", 3600)
    assert (librdkafka.subject, librdkafka.life_seconds) == ("eve", 60)
    assert isinstance(command, TokenCommand)
    assert command.argv == ("get-token", "--for", "my cluster")


def test_the_region_of_a_managed_broker() -> None:
    assert msk_region("b-1.demo.abc.c2.kafka.eu-west-1.amazonaws.com") == "eu-west-1"
    assert msk_region("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com") == "us-east-2"


# -- host maps and proxies ---------------------------------------------------------------------


def test_host_map_and_proxy_serve_the_wire_only() -> None:
    found = client_settings(
        {"bootstrap.servers": "b-1.internal:9092"},
        hosts={"b-1.internal:9092": "127.0.0.1:19092"},
        socks5="jump:1081",
    )
    assert found.security.hosts == {("b-1.internal", 9092): ("127.0.0.1", 19092)}
    assert found.security.socks is not None
    assert found.security.socks.address == "jump:1081"
    with pytest.raises(UsageError, match="host map or a SOCKS proxy"):
        librdkafka_properties(found)


@pytest.mark.parametrize("text", [f"me:{PASSWORD}", f"{PASSWORD}@h:1", f"me:{PASSWORD}@h:x"])
def test_a_bad_proxy_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings({}, socks5=text)
    assert PASSWORD not in caught.value.sentence


# -- TLS files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, cert.pem, key.pem, encrypted.pem (password s3cret-of-alice), keystore.pem."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.make("test CA")
    certificate, key = authority.issue("alice")
    write_certificate(folder / "ca.pem", authority.certificate)
    write_certificate(folder / "cert.pem", certificate)
    write_key(folder / "key.pem", key)
    write_key(folder / "encrypted.pem", key, PASSWORD)
    write_keystore(folder / "keystore.pem", certificate, key)
    write_key(folder / "other.pem", authority.issue("bob")[1])
    return folder


def ssl_settings(files: Path, **more: str) -> ClientSettings:
    dotted = {key.replace("_", "."): value for key, value in more.items()}
    return settings({"security.protocol": "SSL", "ssl.ca.location": f"{files}/ca.pem"} | dotted)


def test_hostnames_are_checked_unless_turned_off(files: Path) -> None:
    checked = ssl_settings(files)
    assert checked.tls is not None
    assert checked.tls.context.check_hostname
    assert checked.tls.context.verify_mode == ssl.CERT_REQUIRED
    made = librdkafka_properties(checked)
    assert made["ssl.endpoint.identification.algorithm"] == "https"
    for off in ("none", ""):
        found = ssl_settings(files, ssl_endpoint_identification_algorithm=off)
        assert found.tls is not None
        assert not found.tls.context.check_hostname
        assert found.tls.context.verify_mode == ssl.CERT_REQUIRED
        made = librdkafka_properties(found)
        assert made["ssl.endpoint.identification.algorithm"] == "none"


def test_pem_files_of_both_clients(files: Path) -> None:
    text = (files / "cert.pem").read_text()
    key = (files / "encrypted.pem").read_text()
    for more in (
        {
            "ssl_certificate_location": f"{files}/cert.pem",
            "ssl_key_location": f"{files}/key.pem",
        },
        {
            "ssl_certificate_location": f"{files}/cert.pem",
            "ssl_key_location": f"{files}/encrypted.pem",
            "ssl_key_password": PASSWORD,
        },
        {"ssl_keystore_location": f"{files}/keystore.pem", "ssl_keystore_type": "PEM"},
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_certificate_chain": text.replace("\n", " "),
            "ssl_keystore_key": key,
            "ssl_key_password": PASSWORD,
        },
    ):
        found = ssl_settings(files, **more)
        assert found.tls is not None
        assert PASSWORD not in repr(found)
        assert "PRIVATE KEY" not in repr(found)
        import confluent_kafka

        # librdkafka reads key and certificate when it makes a client
        confluent_kafka.Producer({**librdkafka_properties(found), "log_level": 0})


def test_a_truststore_may_stand_in_the_properties(files: Path) -> None:
    text = (files / "ca.pem").read_text().replace("\n", " ")
    found = settings(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": text,
        }
    )
    assert found.tls is not None
    (held,) = found.tls.context.get_ca_certs()
    assert held["subject"] == ((("commonName", "test CA"),),)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"ssl_ca_location": "/no/ca.pem"},
            "ssl.ca.location: /no/ca.pem cannot be read: No such file or directory",
        ),
        (
            {"ssl_certificate_location": "{}/cert.pem", "ssl_key_location": "{}/encrypted.pem"},
            "ssl.key.location: the private key is encrypted; set ssl.key.password",
        ),
        (
            {
                "ssl_certificate_location": "{}/cert.pem",
                "ssl_key_location": "{}/encrypted.pem",
                "ssl_key_password": "wrong",
            },
            "ssl.key.password: the private key cannot be decrypted with this password",
        ),
        (
            {"ssl_certificate_location": "{}/cert.pem", "ssl_key_location": "{}/other.pem"},
            "ssl.key.location: the private key does not belong to the certificate",
        ),
        (
            {
                "ssl_certificate_location": "{}/ca.pem",
                "ssl_key_location": "{}/encrypted.pem",
                "ssl_key_password": PASSWORD,
            },
            "ssl.key.location: the private key does not belong to the certificate",
        ),
        (
            {"ssl_certificate_location": "{}/cert.pem"},
            "ssl.key.location is missing; a certificate goes with its private key",
        ),
        ({"ssl_endpoint_identification_algorithm": "LDAPS"}, "'ldaps' is not known"),
    ],
)
def test_bad_tls_files(files: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ssl_settings(files, **{key: value.format(files) for key, value in more.items()})
    assert said in caught.value.sentence


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_java_stores_are_refused_with_commands_that_convert_them(
    files: Path, tmp_path: Path, kind: str
) -> None:
    """The commands in the refusal are run as printed (passwords added), and the result is read."""
    secret = ["-storepass", PASSWORD]
    trust, store = tmp_path / f"trust {kind}", tmp_path / f"key.{kind.lower()}"
    ca = f"{files}/ca.pem"
    keytool(
        *["-importcert", "-noprompt", "-alias", "ca", "-file", ca, "-keystore", str(trust)],
        *["-storetype", kind, *secret],
    )
    keytool(
        *["-genkeypair", "-alias", "k", "-keyalg", "EC", "-dname", "CN=alice"],
        *["-keystore", str(store), "-storetype", kind, "-keypass", PASSWORD, *secret],
    )
    converted: dict[str, str] = {}
    for stem, path in (("ssl.truststore", trust), ("ssl.keystore", store)):
        with pytest.raises(UsageError) as caught:
            settings({"security.protocol": "SSL", f"{stem}.location": str(path)})
        remedy = caught.value.remedy or ""
        command = remedy.split("`")[1]
        command = command.replace("keytool -list", f"keytool -list -storepass {PASSWORD}")
        command = command.replace(
            "keytool -importkeystore",
            f"keytool -importkeystore -srcstorepass {PASSWORD} -deststorepass {PASSWORD}",
        )
        command = command.replace(
            "openssl pkcs12", f"openssl pkcs12 -passin pass:{PASSWORD} -passout pass:{PASSWORD}"
        )
        subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path, capture_output=True)
        sets = remedy.split("set ")[1].split(" and ")
        for line in sets:
            key, _, value = line.partition("=")
            (value,) = shlex.split(value)
            converted[key] = str(tmp_path / value) if key.endswith("location") else value
    found = settings({"security.protocol": "SSL", "ssl.key.password": PASSWORD, **converted})
    assert found.tls is not None
    (held,) = found.tls.context.get_ca_certs()
    assert held["subject"] == ((("commonName", "test CA"),),)


def test_a_rack_is_where_the_reader_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job begins where the variable of its executors is not set: there is no rack then."""
    monkeypatch.delenv("EOCTL_TEST_RACK", raising=False)

    def rack(value: str) -> str:
        servers = {"bootstrap.servers": "b1:9092"}
        return client_settings({**servers, "client.rack": value}).client_rack

    assert client_settings({"bootstrap.servers": "b1:9092"}).client_rack == ""
    assert rack("eu-1a") == "eu-1a"
    assert rack("env:EOCTL_TEST_RACK") == ""
    monkeypatch.setenv("EOCTL_TEST_RACK", "eu-1b")
    assert rack("env:EOCTL_TEST_RACK") == "eu-1b"
    assert rack(f"file:{tmp_path}/rack") == ""
    (tmp_path / "rack").write_text("eu-1c\n")
    assert rack(f"file:{tmp_path}/rack") == "eu-1c"
