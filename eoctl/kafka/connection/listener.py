"""Explain errors between a client and a broker's listener, each in one sentence with a remedy.

Each function turns what was observed (an exception, an error code, the first bytes) into the
WireError to raise. The cases are those of a port, a protocol or a credential set wrongly. TLS fails
in the same ways elsewhere: a `Peer` says who the other side is, and which settings matter.
"""

import errno
import ssl
from collections.abc import Iterable

from eoctl.kafka.connection import messages
from eoctl.kafka.connection.failures import WireError
from recovery.values import Value

TLS_ALERT = b"\x15\x03"  # record type "alert", major version 3
LONGEST_QUOTE = 300  # characters of a broker's own text
HOSTNAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
SAYS_WHO = (18, 19, 20, 21)  # X509_V_ERR_: self-signed, or an issuer that is not available
EXPIRED, NOT_YET_VALID = 10, 9


class Peer(Value):
    """The other side of a TLS connection. All fields but the first are remedies: our settings."""

    name: str
    ca: str  # nobody we trust signed its certificate
    certificate: str  # it wants one of ours
    plaintext: str  # it does not answer with TLS


BROKER = Peer(
    "the broker",
    "set ssl.ca.location, or ssl.truststore.location of type PEM, to the CA's certificate",
    "set ssl.keystore.location (or ssl.certificate.location and ssl.key.location)",
    "check the port, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
)


def not_kafka(first: bytes) -> WireError:
    """Return the error for an answer that does not begin with a Kafka frame's length."""
    if first.startswith(TLS_ALERT):
        return speaks_tls()
    if first == b"HTTP":
        return WireError("NOT_KAFKA", "the port speaks HTTP, not Kafka", "check the port")
    return WireError(
        "NOT_KAFKA",
        f"the answer begins with {first!r}, which no Kafka broker sends",
        "check the port and security.protocol",
    )


def speaks_tls() -> WireError:
    return WireError(
        "NOT_KAFKA",
        "the port speaks TLS, and security.protocol asks for none",
        "set security.protocol to SSL or SASL_SSL",
    )


def controller() -> WireError:
    """Return the error for a peer that speaks Kafka but does not know Metadata requests."""
    return WireError(
        "UNSUPPORTED_VERSION",
        "this port does not answer Metadata: it looks like a KRaft controller's",
        "give the address of a broker's listener",
    )


def closed_at_once(tls: bool) -> WireError:
    """Return the error for a connection that ended before the first answer."""
    if tls:
        return WireError(
            "TLS_FAILED",
            "the broker closed the connection right after the TLS handshake: "
            "it may want a client certificate",
            BROKER.certificate,
        )
    return WireError(
        "CONNECTION_CLOSED",
        "the connection was closed without an answer: the port may speak TLS",
        "check the port, and whether security.protocol should be SSL or SASL_SSL",
    )


def closed_without_sasl(protocol: str) -> WireError:
    """Return the error for a connection that ended right after ApiVersions, without our login."""
    return WireError(
        "CONNECTION_CLOSED",
        "the broker closed the connection at the first question: it may want SASL",
        f"set security.protocol=SASL_{protocol}, sasl.mechanism and the credentials",
    )


def silent_tls() -> WireError:
    return WireError(
        "TIMED_OUT",
        "it accepted the connection but did not answer the TLS handshake in time",
        "check that it is a TLS listener of a broker, and that the broker is not frozen",
    )


def silent() -> WireError:
    return WireError(
        "TIMED_OUT",
        "it accepted the connection but did not answer in time",
        "check that it is a broker's port, that security.protocol fits it, "
        "and that the broker is not frozen",
    )


def wrong_name(error: OSError) -> bool:
    """Return True if a handshake failed only because the certificate does not name the host."""
    code = getattr(error, "verify_code", 0)
    return isinstance(error, ssl.SSLCertVerificationError) and code in HOSTNAME_MISMATCH


def tls_failed(
    error: OSError, host: str = "", names: Iterable[str] = (), peer: Peer = BROKER
) -> WireError:
    """Return the error for failed TLS. host: the name asked for; names: the certificate's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return WireError("TLS_FAILED", *_certificate(error, host, names, peer))
    if isinstance(error, ssl.SSLError):
        return _alert(error, peer)
    if isinstance(error, ConnectionError) and error.errno in (None, errno.ECONNRESET, errno.EPIPE):
        return _plaintext(peer)
    return WireError("TLS_FAILED", f"TLS failed: {error.strerror or error}")


def _certificate(
    error: ssl.SSLCertVerificationError, host: str, names: Iterable[str], peer: Peer
) -> tuple[str, str]:
    if error.verify_code in HOSTNAME_MISMATCH:
        held = ", ".join(names)
        return (
            f"{peer.name}'s certificate is for {held or 'another name'}, not for {host}",
            "connect by one of its names, or have a certificate made for this one",
        )
    if error.verify_code in SAYS_WHO:
        return (
            (
                f"{peer.name}'s certificate is not signed by a CA that we trust "
                f"({error.verify_message})"
            ),
            peer.ca,
        )
    if error.verify_code == EXPIRED:
        return f"{peer.name}'s certificate has expired", "have it renewed, or check this clock"
    if error.verify_code == NOT_YET_VALID:
        return f"{peer.name}'s certificate is not valid yet", "check the clocks"
    return f"{peer.name}'s certificate was not accepted: {error.verify_message}", "check it"


def _alert(error: ssl.SSLError, peer: Peer) -> WireError:
    reason = error.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "EOF" in reason or "RECORD_LAYER" in reason:
        return _plaintext(peer)
    words = reason.lower().replace("_", " ") or "the handshake failed"
    if "CERTIFICATE_REQUIRED" in reason or "ALERT_BAD_CERTIFICATE" in reason:
        detail = f"{peer.name} wants a client certificate that it accepts ({words})"
        remedy = peer.certificate
    elif "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        detail = f"{peer.name} does not accept our certificate ({words})"
        remedy = f"use a client certificate signed by a CA that {peer.name} trusts, not expired"
    elif "HANDSHAKE_FAILURE" in reason or "PROTOCOL" in reason or "CIPHER" in reason:
        detail = f"no common TLS version, cipher or certificate ({words})"
        remedy = "check the TLS versions of the listener, and whether it wants a client certificate"
    else:
        detail, remedy = f"TLS failed ({words})", "check that it is a TLS listener"
    return WireError("TLS_FAILED", detail, remedy)


def _plaintext(peer: Peer) -> WireError:
    return WireError(
        "TLS_FAILED",
        "the TLS handshake was not answered with TLS: it may be a plaintext listener",
        peer.plaintext,
    )


def mechanism_refused(code: int, mechanism: str, offered: Iterable[str]) -> WireError:
    """Return the error for a refused SaslHandshake."""
    name = messages.error_name(code)
    listed = ", ".join(sorted(offered))
    if name == "ILLEGAL_SASL_STATE" or not listed:
        return WireError(
            "AUTHENTICATION_FAILED",
            "this listener does not support SASL: it offers no mechanism",
            "set security.protocol to PLAINTEXT or SSL, or use the port of the SASL listener",
        )
    return WireError(
        "AUTHENTICATION_FAILED",
        f"the broker does not offer {mechanism}; it offers {listed}",
        "set sasl.mechanism to one of these",
    )


def refused(code: int, text: str | None, mechanism: str) -> WireError:
    """Return the error for a refused SaslAuthenticate, in the broker's own words if any."""
    words = " ".join((text or "").split())[:LONGEST_QUOTE] or messages.error_name(code)
    remedy = (
        "check the token's source, and what the listener expects of it"
        if mechanism == "OAUTHBEARER"
        else "check the user name and password"
    )
    return WireError("AUTHENTICATION_FAILED", f"the broker refused: {words}", remedy)
