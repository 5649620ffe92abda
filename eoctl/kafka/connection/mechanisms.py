"""Choose the SASL mechanism, and the source of its credentials, from client properties.

Reads `sasl.jaas.config` too, the property in which Java clients keep their credentials.
"""

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eoctl.kafka.connection.credentials import Confidential, Secret, resolve
from eoctl.kafka.connection.sasl import Mechanism, OAuthBearer, Plain, Scram, TokenSource
from recovery.errors import UsageError

if TYPE_CHECKING:
    from eoctl.kafka.connection.tls import Tls

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM")
MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
}
JAAS_KEY = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")
_QUOTED = re.compile(r"""(["'])((?:[^\\\r\n]|\\.)*?)\1""")
_SKIP = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"""[^\s=;"'/]+""")
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(Confidential):
    """name: the Java class without its package. options: its key="value" pairs, with secrets."""

    name: str
    options: dict[str, str]


def sasl_mechanism(properties: Mapping[str, str], first_host: str) -> Mechanism:
    """Return the mechanism with its credentials, secrets resolved.

    first_host: the first bootstrap server; MSK's region is in its name. Raises UsageError.
    """
    name = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", "")).upper()
    jaas = LoginModule("", {})
    if text := properties.get(JAAS_KEY):
        jaas = parse_jaas(resolve(text, JAAS_KEY))
    if name == "GSSAPI" or jaas.name == "Krb5LoginModule":
        raise UsageError(
            "Kerberos (GSSAPI) is not supported",
            remedy="use a SCRAM, mTLS or OAUTHBEARER listener, or run on bundles",
        )
    if name not in MECHANISMS:
        raise UsageError(
            f"{name!r} is not supported" if name else "it is missing, and Kerberos its default",
            where="sasl.mechanism",
            remedy=f"write one of {', '.join(MECHANISMS)}",
        )
    if jaas.name and jaas.name != MODULES[name]:
        raise UsageError(
            f"{jaas.name} does not belong to sasl.mechanism {name}",
            where=JAAS_KEY,
            remedy=f"use {MODULES[name]}, or the mechanism that goes with {jaas.name}",
        )
    if name == "AWS_MSK_IAM":
        return OAuthBearer(_msk_source(jaas.options, first_host))
    if name == "OAUTHBEARER":
        return OAuthBearer(_token_source(properties, jaas.options), _extensions(properties, jaas))
    if jaas.options.get("tokenauth", "").lower() == "true":
        raise UsageError("delegation tokens (tokenauth) are not supported", where=JAAS_KEY)
    username = _first(properties, "sasl.username") or _option(jaas.options, "username")
    password = _first(properties, "sasl.password") or _option(jaas.options, "password")
    for key, value in (("sasl.username", username), ("sasl.password", password)):
        if value is None:
            raise UsageError(
                f"it is missing, and {name} needs it",
                where=key,
                remedy=f"set it, or {JAAS_KEY}; a value may be env:NAME or file:PATH",
            )
    assert username is not None
    assert password is not None
    if name == "PLAIN":
        return Plain(username, Secret(password))
    return Scram(name, username, Secret(password))


def _token_source(properties: Mapping[str, str], options: Mapping[str, str]) -> TokenSource:
    """Return the token source: a command, an OIDC token endpoint, or unsecured (for a lab)."""
    from eoctl.kafka.connection import oauth

    if command := properties.get("token_command"):
        try:
            argv = shlex.split(command)
        except ValueError:
            raise UsageError("a quotation mark is not closed", where="token_command") from None
        return oauth.TokenCommand(tuple(argv))
    if url := properties.get("sasl.oauthbearer.token.endpoint.url"):
        return _oidc_source(url, properties, options)
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        seconds = options.get("unsecuredLoginLifetimeSeconds", "3600")
        return oauth.UnsecuredToken(subject, _seconds(seconds, JAAS_KEY))
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true":
        key = "sasl.oauthbearer.config"
        config = dict(re.findall(r"(\w+)=(\S*)", properties.get(key, "")))
        if "principal" not in config:
            raise UsageError("it names no principal", where=key, remedy="write principal=NAME")
        return oauth.UnsecuredToken(
            config["principal"], _seconds(config.get("lifeSeconds", "3600"), key)
        )
    raise UsageError(
        "nothing says where the OAUTHBEARER token comes from",
        remedy="set sasl.oauthbearer.token.endpoint.url with a client id and secret, "
        "or token_command",
    )


def _oidc_source(
    url: str, properties: Mapping[str, str], options: Mapping[str, str]
) -> TokenSource:
    """Return client credentials, in Java's spelling (jaas or KIP-1139) or librdkafka's."""
    from eoctl.kafka.connection.oidc import ClientCredentials

    grant = properties.get("sasl.oauthbearer.grant.type", "client_credentials")
    if grant != "client_credentials":
        raise UsageError(
            f"{grant!r} is not supported",
            where="sasl.oauthbearer.grant.type",
            remedy="use client_credentials, or token_command",
        )
    if not re.match(r"https://[^/]", url, re.IGNORECASE):
        raise UsageError(
            "a client secret is sent over https:// only",
            where="sasl.oauthbearer.token.endpoint.url",
        )
    client_id = _first(
        properties,
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
    ) or _option(options, "clientId")
    client_secret = _first(
        properties,
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ) or _option(options, "clientSecret")
    for key, value in (("client.id", client_id), ("client.secret", client_secret)):
        if not value:
            raise UsageError(
                "it is missing, and the token endpoint needs it",
                where=f"sasl.oauthbearer.{key}",
                remedy=f"set it, or clientId and clientSecret in {JAAS_KEY}",
            )
    assert client_id is not None
    assert client_secret is not None
    return ClientCredentials(
        url=url,
        client_id=client_id,
        client_secret=Secret(client_secret),
        scope=properties.get("sasl.oauthbearer.scope") or options.get("scope"),
        urlencode=properties.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
        tls=_endpoint_tls(properties, options),
    )


def _endpoint_tls(properties: Mapping[str, str], options: Mapping[str, str]) -> "Tls":
    """Return the CAs that may have signed the endpoint's certificate: its own, else the system's.

    librdkafka: https.ca.location and https.ca.pem; Java: ssl.truststore.* inside the jaas line.
    """
    from eoctl.kafka.connection.tls import tls_settings

    own = {key: value for key, value in options.items() if key.startswith("ssl.truststore.")}
    for key in ("location", "pem"):
        if value := properties.get(f"https.ca.{key}"):
            own[f"ssl.ca.{key}"] = value
    return tls_settings(own)


def _msk_source(options: Mapping[str, str], first_host: str) -> TokenSource:
    import importlib.util

    from eoctl.kafka.connection import oauth

    if importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
        raise UsageError(
            "AWS_MSK_IAM needs an extra that is not installed", remedy="pip install 'eoctl[msk]'"
        )
    return oauth.MskToken(
        region=oauth.msk_region(first_host),
        profile=options.get("awsProfileName"),
        role_arn=options.get("awsRoleArn"),
        role_session=options.get("awsRoleSessionName", "eoctl"),
    )


def _extensions(properties: Mapping[str, str], jaas: LoginModule) -> tuple[tuple[str, str], ...]:
    """Return SASL extensions: librdkafka's "a=1,b=2", Java's extension_a="1" in the jaas line."""
    pairs: dict[str, str] = {}
    for part in properties.get("sasl.oauthbearer.extensions", "").split(","):
        name, equals, value = part.strip().partition("=")
        if equals:
            pairs[name] = value
    for option, value in jaas.options.items():
        if option.startswith("extension_"):
            pairs[option.removeprefix("extension_")] = value
    for name, value in pairs.items():
        if not re.fullmatch(r"[A-Za-z]+", name) or name == "auth" or "\x01" in value:
            raise UsageError(f"{name!r} cannot be a SASL extension", remedy="use letters only")
    return tuple(pairs.items())


def _first(properties: Mapping[str, str], *keys: str) -> str | None:
    return next((resolve(properties[k], k) for k in keys if k in properties), None)


def _option(options: Mapping[str, str], name: str) -> str | None:
    return resolve(options[name], f"{JAAS_KEY}, {name}") if name in options else None


def _seconds(text: str, where: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{text!r} is not a number of seconds above 0", where=where)
    return int(text)


def parse_jaas(text: str) -> LoginModule:
    """Return the only login module of a `sasl.jaas.config` value.

    Grammar and escapes are those of org.apache.kafka.common.security.JaasConfig, which reads with
    java.io.StreamTokenizer; unquoted values may hold any character but blanks, `=`, `;`, `/` and
    quotes. Raises UsageError, which never quotes the text: it holds passwords.
    """
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[-1] != (";", False):
        raise _broken("it does not end with a semicolon")
    (name, _), (flag, _), rest = tokens[0], tokens[1], tokens[2:-1]
    if flag.lower() not in FLAGS:
        raise _broken("the word after the login module is not `required`")
    if (";", False) in rest:
        raise _broken("it names more than one login module")
    if len(rest) % 3:
        raise _broken('an option is not written name="value"')
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        (key, key_quoted), equals, (value, quoted) = rest[at : at + 3]
        if key_quoted or equals != ("=", False) or (value in "=;" and value and not quoted):
            raise _broken('an option is not written name="value"')
        options[key] = value
    return LoginModule(name.rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return (token, whether it was quoted), in order."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if skipped := _SKIP.match(text, at):
            at = skipped.end()
        elif text[at] in "=;":
            tokens.append((text[at], False))
            at += 1
        elif quoted := _QUOTED.match(text, at):
            tokens.append((_ESCAPE.sub(_unescape, quoted[2]), True))
            at = quoted.end()
        elif word := _WORD.match(text, at):
            tokens.append((word[0], False))
            at = word.end()
        else:
            raise _broken("a quotation mark is not closed or a character needs quoting")
    return tokens


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)


def _broken(why: str) -> UsageError:
    return UsageError(
        f"cannot be read: {why}",
        where=JAAS_KEY,
        remedy='write `org.apache.kafka...LoginModule required username="..." password="...";`',
    )
