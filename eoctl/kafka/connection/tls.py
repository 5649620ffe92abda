"""Set up TLS from either client's properties: files and checks become one ssl.SSLContext."""

import re
import shlex
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from eoctl.kafka.connection.credentials import Secret, read_file, resolve
from recovery.errors import UsageError
from recovery.values import Value

PEM_BEGIN = "-----BEGIN"


class Pem(Value):
    """PEM text and the property it came from; path: its file, None if given inline."""

    key: str
    path: str | None
    text: Secret

    @contextmanager
    def file(self) -> Iterator[str]:
        """Yield a file with the text: its own, or one that lives as long as the context."""
        if self.path is not None:
            yield self.path
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
            file.write(self.text.reveal())
            file.flush()
            yield file.name


class Tls(Value, dict=True):
    """The files and names with which we check brokers and identify ourselves.

    ca: trusted certificates, a Pem or a folder of them; None = those of the system. certificate,
    private_key: ours, None without mTLS; both may be the same file. check_hostname: the certificate
    must name the host; verify: it must be signed by `ca`.
    """

    ca: Pem | str | None = None
    certificate: Pem | None = None
    private_key: Pem | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
    verify: bool = True

    def __post_init__(self) -> None:
        """Build the context. Raises UsageError for what OpenSSL cannot read."""
        _ = self.context

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Return the context of every connection."""
        return self._build()

    def without_hostname_check(self) -> ssl.SSLContext:
        """Return a second context, only to ask a peer which names its certificate holds."""
        context = self._build()
        context.check_hostname = False
        return context

    def librdkafka_properties(self) -> dict[str, str]:
        """Return these settings in librdkafka's names."""
        properties = {
            "ssl.endpoint.identification.algorithm": "https" if self.check_hostname else "none",
            "enable.ssl.certificate.verification": "true" if self.verify else "false",
        }
        pems = {"ssl.ca": self.ca, "ssl.certificate": self.certificate, "ssl.key": self.private_key}
        for stem, pem in pems.items():
            if isinstance(pem, str):
                properties[f"{stem}.location"] = pem
            elif pem is not None and pem.path is not None:
                properties[f"{stem}.location"] = pem.path
            elif pem is not None:
                properties[f"{stem}.pem"] = pem.text.reveal()
        if self.key_password is not None:
            properties["ssl.key.password"] = self.key_password.reveal()
        return properties

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname and self.verify
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.ca is None:
            context.load_default_certs()
        elif isinstance(self.ca, str):
            context.load_verify_locations(capath=self.ca)
        else:
            try:
                context.load_verify_locations(cadata=_certificates_only(self.ca.text.reveal()))
            except ssl.SSLError:
                raise _unreadable(self.ca, "no certificate in PEM form") from None
        if self.certificate is not None:
            self._show_certificate(context, self.certificate)
        return context

    def _show_certificate(self, context: ssl.SSLContext, certificate: Pem) -> None:
        private_key = self.private_key or certificate
        password_needed = False

        def password() -> str:
            # without a callback OpenSSL would ask on the terminal
            nonlocal password_needed
            password_needed = True
            return self.key_password.reveal() if self.key_password else ""

        try:
            with certificate.file() as chain, private_key.file() as key:
                context.load_cert_chain(chain, key, password)
        except (ssl.SSLError, ValueError, OSError) as error:
            if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                raise UsageError(
                    "the private key does not belong to the certificate", where=private_key.key
                ) from None
            if password_needed and self.key_password is None:
                raise UsageError(
                    "the private key is encrypted",
                    where=private_key.key,
                    remedy="set ssl.key.password",
                ) from None
            if password_needed:
                raise UsageError(
                    "the private key cannot be decrypted with this password",
                    where="ssl.key.password",
                ) from None
            raise _unreadable(
                certificate, "no certificate with its private key in PEM form"
            ) from None


def tls_settings(properties: Mapping[str, str]) -> Tls:
    """Read the ssl.* properties, Java's or librdkafka's. Raises UsageError."""
    certificate = _pem(properties, "ssl.certificate")
    private_key = _pem(properties, "ssl.key")
    if certificate is None:
        certificate, private_key = _java_keystore(properties)
    if (certificate is None) != (private_key is None):
        missing = "ssl.key.location" if private_key is None else "ssl.certificate.location"
        raise UsageError(f"{missing} is missing", remedy="a certificate goes with its private key")
    password = properties.get("ssl.key.password")
    identification = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("https", "none", ""):
        raise UsageError(
            f"{identification!r} is not known",
            where="ssl.endpoint.identification.algorithm",
            remedy="write https or none",
        )
    return Tls(
        ca=_trusted(properties),
        certificate=certificate,
        private_key=private_key,
        key_password=Secret(resolve(password, "ssl.key.password")) if password else None,
        check_hostname=identification == "https",
        verify=properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )


def _pem(properties: Mapping[str, str], stem: str) -> Pem | None:
    """Return librdkafka's STEM.location (a file) or STEM.pem (inline)."""
    if path := properties.get(f"{stem}.location"):
        return _pem_file(f"{stem}.location", path)
    if text := properties.get(f"{stem}.pem"):
        return _pem_inline(f"{stem}.pem", text)
    return None


def _trusted(properties: Mapping[str, str]) -> Pem | str | None:
    location = properties.get("ssl.ca.location")
    if location == "probe":
        return None
    if location and Path(location).expanduser().is_dir():
        return str(Path(location).expanduser())
    if certificates := _pem(properties, "ssl.ca"):
        return certificates
    if text := properties.get("ssl.truststore.certificates"):
        return _pem_inline("ssl.truststore.certificates", text)
    return _java_store(properties, "ssl.truststore")


def _java_keystore(properties: Mapping[str, str]) -> tuple[Pem | None, Pem | None]:
    """Return Java's certificate and key: inline in two properties, or one file with both."""
    chain = properties.get("ssl.keystore.certificate.chain")
    key = properties.get("ssl.keystore.key")
    if chain or key:
        return (
            _pem_inline("ssl.keystore.certificate.chain", chain) if chain else None,
            _pem_inline("ssl.keystore.key", key) if key else None,
        )
    store = _java_store(properties, "ssl.keystore")
    return store, store


def _java_store(properties: Mapping[str, str], stem: str) -> Pem | None:
    """Return a Java key or trust store, which must be PEM: Python and librdkafka read no JKS."""
    location = properties.get(f"{stem}.location")
    if not location:
        return None
    kind = properties.get(f"{stem}.type", "").upper()
    if kind == "PEM":
        return _pem_file(f"{stem}.location", location)
    path = Path(location).expanduser()
    try:
        head = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", where=f"{stem}.location"
        ) from None
    if not kind and PEM_BEGIN.encode() in head:
        return _pem_file(f"{stem}.location", location)
    is_pkcs12 = kind == "PKCS12" or (not head.startswith(b"\xfe\xed\xfe\xed") and head[:1] == b"0")
    raise UsageError(
        f"{path} is a {'PKCS12' if is_pkcs12 else kind or 'JKS'} file, and only PEM is read here",
        where=f"{stem}.location",
        remedy=_conversion(stem, path, is_pkcs12),
    )


def _conversion(stem: str, path: Path, is_pkcs12: bool) -> str:
    """Return the commands that turn a Java store into PEM, ready to be pasted."""
    source = shlex.quote(str(path))
    pem = shlex.quote(f"{path.stem}.pem")
    if stem == "ssl.truststore":
        commands = f"keytool -list -rfc -keystore {source} > {pem}"
    elif is_pkcs12:
        commands = f"openssl pkcs12 -in {source} -out {pem}"
    else:
        p12 = shlex.quote(f"{path.stem}.p12")
        commands = (
            f"keytool -importkeystore -srckeystore {source} -destkeystore {p12} "
            f"-deststoretype PKCS12 && openssl pkcs12 -in {p12} -out {pem}"
        )
    return f"convert it with `{commands}`, then set {stem}.location={pem} and {stem}.type=PEM"


def _pem_file(key: str, location: str) -> Pem:
    text = read_file(location, key)
    pem = Pem(key, str(Path(location).expanduser()), Secret(text))
    if PEM_BEGIN not in text:
        raise _unreadable(pem, "it holds nothing in PEM form")
    return pem


def _pem_inline(key: str, value: str) -> Pem:
    # Kafka's PemStore accepts blanks for newlines between the markers; OpenSSL does not.
    text = resolve(value, key).replace("\\n", "\n")
    pem = Pem(key, None, Secret(_unfold(text)))
    if PEM_BEGIN not in text:
        raise _unreadable(pem, "it holds nothing in PEM form")
    return pem


def _unfold(text: str) -> str:
    """Split PEM that was written on one line into lines again."""

    def block(match: "re.Match[str]") -> str:
        begin, body, end = match.groups()
        return "\n".join([begin, *body.split(), end]) + "\n"

    return re.sub(r"(-----BEGIN [A-Z0-9 ]+-----)([^-]*)(-----END [A-Z0-9 ]+-----)", block, text)


def _certificates_only(text: str) -> str:
    """Drop what `keytool -list -rfc` and `openssl pkcs12` write around certificates."""
    blocks = re.findall(
        r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.*?-----END (?:TRUSTED )?CERTIFICATE-----",
        text,
        re.DOTALL,
    )
    return "\n".join(blocks) + "\n" if blocks else ""


def _unreadable(pem: Pem, why: str) -> UsageError:
    return UsageError(f"{pem.path or 'the value'} cannot be used: {why}", where=pem.key)
