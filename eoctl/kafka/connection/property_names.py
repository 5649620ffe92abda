"""Kafka clients' names of security properties, to find misspelt ones."""

import re
from collections.abc import Mapping

from recovery.errors import UsageError

SECRET_KEY = re.compile(
    r"password|passphrase|secret|jaas|token|user\.info|[._]key\s*$|key\.pem", re.IGNORECASE
)
"""Client properties whose values are never shown."""
ELSEWHERE = re.compile(r"(env|file):.")
"""A value that says where the secret is kept, which is none."""

# Only librdkafka knows these: a file with one of them has no Java escapes and continuation lines.
LIBRDKAFKA_ONLY = frozenset(
    [
        "metadata.broker.list",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "https.ca.location",
        "https.ca.pem",
    ]
)
# The other names in either client's documentation under ssl, sasl and security, without those
# refused below. Most change nothing here; none is a misspelling.
KNOWN = LIBRDKAFKA_ONLY | frozenset(
    [
        "security.protocol",
        "security.providers",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.ca.certificate.stores",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.sigalgs.list",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ]
)
# Ignoring these would make the connection less safe than requested, or break it.
_UNSUPPORTED = (
    r"ssl\.(crl\.location|engine\.(id|location|factory\.class)|providers)"
    r"|sasl\.oauthbearer\.(assertion\..*|metadata\.authentication\.type)"
)
_GUARDED = re.compile(r"(enable\.)?(ssl|sasl|security|https)\.")


def refuse_misspelt(properties: Mapping[str, str]) -> None:
    """Raise UsageError for ssl.*, sasl.* and security.* names that no client knows."""
    for key in properties:
        if not _GUARDED.match(key):
            continue
        if re.fullmatch(_UNSUPPORTED, key):
            raise UsageError("this property is not supported", where=key)
        if key not in KNOWN:
            import difflib

            near = difflib.get_close_matches(key, KNOWN, n=1)
            raise UsageError(
                "no Kafka client has such a property",
                where=key,
                remedy=f"did you mean {near[0]}?" if near else "remove it",
            )


def in_clear(properties: Mapping[str, str]) -> list[str]:
    """Return the properties that hold a secret itself, not a reference to one."""
    return [
        key
        for key, value in properties.items()
        if SECRET_KEY.search(key)
        and not ELSEWHERE.match(value)
        and not key.endswith((".location", ".url"))  # a key's or a token's location is not secret
    ]
