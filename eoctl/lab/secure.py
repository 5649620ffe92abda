"""`lab up --secure`: a listener per way of signing in, users with different rights, ACLs.

Every user can sign in everywhere: with a password at SCRAM, SCRAM_TEXT and PLAIN, with an unsecured
token at OAUTH, with a certificate at MTLS. The brokers use mTLS among themselves. Two listeners are
wrong on purpose: EXPIRED and WRONG_HOST. PLAINTEXT accepts everybody, with no rights.
"""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from eoctl.lab import certificates
from eoctl.lab.brokers import write_settings
from eoctl.lab.certificates import Authority
from eoctl.lab.record import CONTROLLER, HOST, PLAINTEXT, LabRecord
from eoctl.lab.users import ADMIN, USERS
from recovery.errors import UsageError

BROKER = "broker"  # the brokers' own principal
DEFAULT_LISTENER = "SCRAM"
_SECURITY = "org.apache.kafka.common.security"  # the Java package

# listener -> (security.protocol, SASL mechanisms, the first one is the clients' default)
LISTENERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "SCRAM": ("SASL_SSL", ("SCRAM-SHA-512", "SCRAM-SHA-256")),
    "PLAIN": ("SASL_SSL", ("PLAIN",)),
    "OAUTH": ("SASL_SSL", ("OAUTHBEARER",)),
    "MTLS": ("SSL", ()),
    "SCRAM_TEXT": ("SASL_PLAINTEXT", ("SCRAM-SHA-512", "SCRAM-SHA-256")),
    "EXPIRED": ("SASL_SSL", ("SCRAM-SHA-512",)),
    "WRONG_HOST": ("SASL_SSL", ("SCRAM-SHA-512",)),
    PLAINTEXT: ("PLAINTEXT", ()),
}


def make(folder: Path) -> None:
    """Create certificates, keys and passwords of a new lab, below `folder`/secure."""
    home = secure_folder(folder)
    home.mkdir(mode=0o700)
    passwords = {user: secrets.token_hex(12) for user in [*USERS, "key"]}
    certificates.write_private(home / "passwords.json", json.dumps(passwords, indent=1).encode())
    authority = Authority.make("eoctl lab CA")
    certificates.write_certificate(home / "ca.pem", authority.certificate)
    stranger = Authority.make("eoctl lab stranger CA")
    certificates.write_certificate(home / "other-ca.pem", stranger.certificate)
    here = (HOST, "localhost")
    for name, issued in {
        "broker": authority.issue(BROKER, hosts=here),
        "expired-broker": authority.issue(BROKER, hosts=here, expired=True),
        "wrong-host-broker": authority.issue(BROKER, hosts=("kafka.example",)),
    }.items():
        certificates.write_keystore(home / f"{name}.keystore.pem", *issued)
    for user, issuer, expired in [
        *((user, authority, False) for user in USERS),
        ("expired", authority, True),
        ("stranger", stranger, False),
    ]:
        certificate, key = issuer.issue(user, expired=expired)
        certificates.write_certificate(home / f"{user}.cert.pem", certificate)
        certificates.write_key(home / f"{user}.key.pem", key)
        certificates.write_key(home / f"{user}.encrypted.key.pem", key, passwords["key"])
        certificates.write_keystore(home / f"{user}.keystore.pem", certificate, key)


def secure_folder(folder: Path) -> Path:
    return folder / "secure"


def passwords(folder: Path) -> dict[str, str]:
    """Return each user's password, and under `key` the password of the encrypted keys."""
    by_user: dict[str, str] = json.loads((secure_folder(folder) / "passwords.json").read_text())
    return by_user


def scram_users(folder: Path) -> list[str]:
    """Return the arguments of `kafka-storage.sh format --add-scram` (KIP-900)."""
    known = passwords(folder)
    return [
        f"{mechanism}=[name={user},password={known[user]}]"
        for user in USERS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]


def broker_settings(folder: Path) -> dict[str, str]:
    """Return what --secure adds to each broker's settings."""
    home, known = secure_folder(folder), passwords(folder)
    protocols = [f"{name}:{protocol}" for name, (protocol, _) in LISTENERS.items()]
    settings = {
        "listener.security.protocol.map": ",".join([f"{CONTROLLER}:SSL", *protocols]),
        "inter.broker.listener.name": "MTLS",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker.keystore.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / "ca.pem"),
        # the same name for every way of signing in
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    }
    for listener in ("MTLS", CONTROLLER):
        settings[f"{_prefix(listener)}ssl.client.auth"] = "required"
    for listener, keystore in {"EXPIRED": "expired", "WRONG_HOST": "wrong-host"}.items():
        file = home / f"{keystore}-broker.keystore.pem"
        settings[f"{_prefix(listener)}ssl.keystore.type"] = "PEM"
        settings[f"{_prefix(listener)}ssl.keystore.location"] = str(file)
    users = " ".join(f'user_{user}="{known[user]}"' for user in USERS)
    modules = {
        "PLAIN": f"{_SECURITY}.plain.PlainLoginModule required {users};",
        "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{BROKER}";',
    }
    scram = f"{_SECURITY}.scram.ScramLoginModule required;"
    for listener, (_, mechanisms) in LISTENERS.items():
        if mechanisms:
            settings[f"{_prefix(listener)}sasl.enabled.mechanisms"] = ",".join(mechanisms)
        for mechanism in mechanisms:
            key = f"{_prefix(listener)}{mechanism.lower()}.sasl.jaas.config"
            settings[key] = modules.get(mechanism, scram)
    return settings


def _prefix(listener: str) -> str:
    return f"listener.name.{listener.lower()}."


def client_properties(
    folder: Path,
    record: LabRecord,
    user: str,
    listener: str | None = None,
    mechanism: str | None = None,
) -> dict[str, str]:
    """Return how `user` signs in at `listener`, in librdkafka's names. Raises UsageError."""
    protocol, mechanisms, properties = _shared(record, user, listener or DEFAULT_LISTENER)
    home = secure_folder(folder)
    if protocol.endswith("SSL"):
        properties["ssl.ca.location"] = str(home / "ca.pem")
    if protocol == "SSL":
        properties["ssl.certificate.location"] = str(home / f"{user}.cert.pem")
        properties["ssl.key.location"] = str(home / f"{user}.key.pem")
    if mechanisms:
        properties["sasl.mechanism"] = mechanism or mechanisms[0]
    if mechanisms == ("OAUTHBEARER",):
        properties["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        properties["sasl.oauthbearer.config"] = f"principal={user}"
    elif mechanisms:
        properties |= {"sasl.username": user, "sasl.password": passwords(folder)[user]}
    return properties


def java_properties(folder: Path, record: LabRecord, user: str, listener: str) -> dict[str, str]:
    """Return the client's properties as Java clients spell them."""
    protocol, mechanisms, properties = _shared(record, user, listener)
    home = secure_folder(folder)
    if protocol.endswith("SSL"):
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(home / "ca.pem"),
        }
    if protocol == "SSL":
        keystore = str(home / f"{user}.keystore.pem")
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore}
    if mechanisms == ("OAUTHBEARER",):
        claim = f'required unsecuredLoginStringClaim_sub="{user}";'
        properties["sasl.mechanism"] = "OAUTHBEARER"
        properties["sasl.jaas.config"] = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule {claim}"
    elif mechanisms:
        module = "plain.Plain" if mechanisms == ("PLAIN",) else "scram.Scram"
        signed = f'required username="{user}" password="{passwords(folder)[user]}";'
        properties["sasl.mechanism"] = mechanisms[0]
        properties["sasl.jaas.config"] = f"{_SECURITY}.{module}LoginModule {signed}"
    return properties


def client_file(folder: Path, user: str, listener: str = DEFAULT_LISTENER) -> Path:
    """Return a user's Java properties file at a listener; `.conf` next to it is librdkafka's."""
    return secure_folder(folder) / "clients" / f"{user}-{listener.lower()}.properties"


def write_client_files(folder: Path, record: LabRecord) -> None:
    """Write a file for every user at every listener, for any client's --command-config."""
    client_file(folder, ADMIN).parent.mkdir()
    for user in USERS:
        for listener in LISTENERS:
            java = client_file(folder, user, listener)
            write_settings(java, java_properties(folder, record, user, listener))
            properties = client_properties(folder, record, user, listener)
            lines = [f"{key}={value}\n" for key, value in properties.items()]
            certificates.write_private(java.with_suffix(".conf"), "".join(lines).encode())


def _shared(
    record: LabRecord, user: str, listener: str
) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return the listener's protocol, its mechanisms, and the properties of every client."""
    if user not in USERS:
        raise UsageError(f"a secure lab has no user {user!r}", remedy=f"one of {', '.join(USERS)}")
    if listener not in LISTENERS:
        raise UsageError(
            f"a secure lab has no listener {listener!r}", remedy=f"one of {', '.join(LISTENERS)}"
        )
    protocol, mechanisms = LISTENERS[listener]
    servers = record.bootstrap_servers(listener)
    properties = {"bootstrap.servers": servers, "security.protocol": protocol}
    return protocol, mechanisms, properties
