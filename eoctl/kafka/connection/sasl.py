"""SASL mechanisms as generators: what the client sends, given the broker's answers.

Each `exchange` yields the client's bytes and receives the broker's; the last answer is sent in too,
so that a mechanism can check it. security.py moves the bytes.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Generator
from typing import Protocol

from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.failures import Deadline, WireError
from recovery.plurals import counted
from recovery.values import Value

Exchange = Generator[bytes, bytes, None]

LEAST_ITERATIONS = 4096  # RFC 5802 section 5.1, and Kafka's own minimum
MOST_ITERATIONS = 1_000_000  # half a second of PBKDF2: no broker may stall us for longer


class Mechanism(Protocol):
    """name: as in SaslHandshake."""

    @property
    def name(self) -> str: ...

    async def exchange(self, deadline: Deadline) -> Exchange:
        """Yield a new conversation. Raises WireError if no token can be had."""
        ...


class Plain(Value):
    """RFC 4616."""

    username: str
    password: Secret
    name: str = "PLAIN"

    async def exchange(self, deadline: Deadline) -> Exchange:
        return self._say()

    def _say(self) -> Exchange:
        yield b"\0" + self.username.encode() + b"\0" + self.password.reveal().encode()


class Scram(Value):
    """RFC 5802 and RFC 7677 without channel binding. name: SCRAM-SHA-256 or SCRAM-SHA-512.

    Passwords are UTF-8 and not otherwise prepared, as in Kafka's ScramFormatter.normalize.
    """

    name: str
    username: str
    password: Secret

    async def exchange(self, deadline: Deadline) -> Exchange:
        return self.conversation(secrets.token_urlsafe(24))

    def conversation(self, nonce: str) -> Exchange:
        """Yield the exchange for a given client nonce."""
        digest = self.name.removeprefix("SCRAM-").replace("-", "").lower()  # sha256, sha512
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        client_first = f"n={user},r={nonce}"
        server_first = (yield b"n,," + client_first.encode()).decode("utf-8", "replace")
        offered = _attributes(server_first)
        if "e" in offered:
            raise _refused(f"the broker refused: {offered['e']}")
        if not offered.get("r", "").startswith(nonce):
            raise _refused("the broker answered with a nonce that is not ours")
        try:
            salt = base64.b64decode(offered["s"], validate=True)
            iterations = int(offered["i"])
        except (KeyError, ValueError):
            raise _refused("the broker's SCRAM answer cannot be read") from None
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise _refused(
                f"the broker asks for {counted(iterations, 'SCRAM iteration')}, "
                f"and {LEAST_ITERATIONS:,} to {MOST_ITERATIONS:,} are accepted"
            )

        salted = hashlib.pbkdf2_hmac(digest, self.password.reveal().encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        without_proof = f"c=biws,r={offered['r']}"  # biws: "n,,", no channel binding
        auth_message = f"{client_first},{server_first},{without_proof}".encode()
        signature = hmac.digest(stored_key, auth_message, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        answer = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

        final = _attributes(answer.decode("utf-8", "replace"))
        if "e" in final:
            raise _refused(f"the broker refused: {final['e']}")
        server_key = hmac.digest(salted, b"Server Key", digest)
        expected = base64.b64encode(hmac.digest(server_key, auth_message, digest)).decode()
        if not hmac.compare_digest(final.get("v", "").encode(), expected.encode()):
            raise WireError(
                "AUTHENTICATION_FAILED",
                "the broker could not prove that it knows this user's password",
                "make sure that this is your broker and not something in between",
            )


class Token(Value):
    """A bearer token. expires: epoch seconds; principal: the name in the token, "" if not known."""

    text: Secret
    expires: float
    principal: str = ""


class TokenSource(Protocol):
    """A source of tokens; it keeps one while it is fresh, for all connections."""

    async def token(self, deadline: Deadline) -> Token:
        """Return a token. Raises WireError AUTHENTICATION_FAILED."""
        ...

    def token_now(self, seconds: float | None) -> Token:
        """Return a token, for a thread that may wait at most `seconds`."""
        ...


class OAuthBearer(Value):
    """RFC 7628. extensions: SASL extensions (KIP-342) sent with the token."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()
    name: str = "OAUTHBEARER"

    async def exchange(self, deadline: Deadline) -> Exchange:
        return self._say(await self.source.token(deadline))

    def _say(self, token: Token) -> Exchange:
        fields = [f"auth=Bearer {token.text.reveal()}"]
        fields += [f"{name}={value}" for name, value in self.extensions]
        failure = yield ("n,,\x01" + "\x01".join(fields) + "\x01\x01").encode()
        if failure:
            # section 3.2.2: the client answers with one byte, then the broker says no
            try:
                status = str(json.loads(failure).get("status", ""))
            except (ValueError, AttributeError):
                status = ""
            yield b"\x01"
            raise _refused(f"the broker refused the token{f': {status}' if status else ''}")


def _attributes(message: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in pairs}


def _refused(detail: str) -> WireError:
    return WireError("AUTHENTICATION_FAILED", detail, "check the user name and password")
