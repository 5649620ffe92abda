"""Get OAUTHBEARER tokens from a command, AWS, or this process (lab); oidc.py has endpoints."""

import asyncio
import base64
import json
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from eoctl.host.waiting import in_thread
from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.sasl import Token
from recovery.errors import UsageError

FRESH_SHARE = 0.75  # of a token's lifetime; sessions are renewed at 80%, with a new token
PATIENCE_SECONDS = 30.0  # for a source without a limit of its own
UNKNOWN_LIFE_SECONDS = 300.0  # for a token that does not say when it expires


@dataclass(eq=False)
class CachedToken(ABC):
    """Keeps a token while it is fresh; one caller at a time fetches the next."""

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _token: Token | None = field(default=None, init=False, repr=False)
    _stale_at: float = field(default=0.0, init=False, repr=False)

    async def token(self, deadline: Deadline) -> Token:
        """See sasl.TokenSource."""
        left = deadline.seconds_left
        try:
            async with asyncio.timeout(left):
                return await in_thread(lambda: self.token_now(left))
        except TimeoutError:
            raise failed(f"{self.what} gave no token in time", None) from None

    def token_now(self, seconds: float | None) -> Token:
        """See sasl.TokenSource."""
        seconds = PATIENCE_SECONDS if seconds is None else seconds
        if not self._lock.acquire(timeout=seconds):
            raise failed(f"{self.what} gave no token in time", None)
        try:
            now = time.time()
            if self._token is None or now >= self._stale_at:
                token = self._fetch(seconds)
                self._token = token
                self._stale_at = now + FRESH_SHARE * (token.expires - now)
            return self._token
        finally:
            self._lock.release()

    @property
    @abstractmethod
    def what(self) -> str:
        """Return the source in words, for errors."""

    @abstractmethod
    def _fetch(self, seconds: float) -> Token:
        """Get a new token, blocking for at most about `seconds`. Raises WireError."""


@dataclass(eq=False)
class UnsecuredToken(CachedToken):
    """An unsigned token (RFC 7515 appendix A.5), as both clients make for a lab."""

    subject: str
    life_seconds: int = 3600

    @property
    def what(self) -> str:
        return "eoctl"

    def _fetch(self, seconds: float) -> Token:
        now = time.time()
        claims = {"sub": self.subject, "iat": now, "exp": now + self.life_seconds}
        parts = [json.dumps({"alg": "none"}), json.dumps(claims)]
        text = ".".join(_base64url(part.encode()) for part in parts) + "."
        return Token(Secret(text), now + self.life_seconds, self.subject)


@dataclass(eq=False)
class TokenCommand(CachedToken):
    """A command that prints a token and its expiry, like kubectl's exec plugins.

    JSON on stdout: {"token", "expirationTimestamp"}, or the same under "status" (ExecCredential).
    """

    argv: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"token_command {self.argv[0] if self.argv else ''}"

    def _fetch(self, seconds: float) -> Token:
        import signal
        import subprocess

        try:
            process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # tools write tokens and passwords to stderr, too
                start_new_session=True,  # to end the command with its children
            )
        except (OSError, IndexError) as error:
            reason = getattr(error, "strerror", None) or "it is empty"
            raise failed(f"{self.what} cannot be started: {reason}", None) from None
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise failed(
                f"{self.what} did not end within {seconds:.1f} s", "raise request.timeout.ms"
            ) from None
        if process.returncode:
            raise failed(
                f"{self.what} ended with status {process.returncode}",
                "run it yourself to see why: what it says may hold a secret and is not shown here",
            )
        printed = _exec_credential(output)
        if printed is None:
            raise failed(
                f"{self.what} printed no JSON with a token",
                'it must print {"token": "...", "expirationTimestamp": "..."}',
            )
        text, expires = printed
        return made_token(text, None, _instant(expires, self.what))


@dataclass(eq=False)
class MskToken(CachedToken):
    """A signed token for Amazon MSK by AWS's own signer (extra `msk`)."""

    region: str
    profile: str | None
    role_arn: str | None
    role_session: str

    @property
    def what(self) -> str:
        return "AWS's signer"

    def _fetch(self, seconds: float) -> Token:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer

        try:
            if self.role_arn:
                token = Signer.generate_auth_token_from_role_arn(
                    self.region, self.role_arn, self.role_session
                )
            elif self.profile:
                token = Signer.generate_auth_token_from_profile(self.region, self.profile)
            else:
                token = Signer.generate_auth_token(self.region)
        except Exception as error:  # botocore has many, all about credentials
            raise failed(
                f"{self.what} made no token: {error}", "check the AWS credentials"
            ) from None
        text, expires_ms = token
        return made_token(text, None, expires_ms / 1000)


def msk_region(host: str) -> str:
    """Return the AWS region: AWS_REGION, or from a name (b-1.x.kafka.eu-west-1.amazonaws.com)."""
    match = re.search(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.", host)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if match is None and not region:
        raise UsageError("the AWS region is not known", remedy="set AWS_REGION")
    return match[1] if match else str(region)


def made_token(text: str, life_seconds: object, expires: float | None = None) -> Token:
    """Return a token that expires as given, else as its own claims say, else soon."""
    claims = _claims(text)
    if expires is None and isinstance(claims.get("exp"), int | float):
        expires = float(claims["exp"])
    if expires is None:
        known = isinstance(life_seconds, int | float) and life_seconds > 0
        expires = time.time() + (float(str(life_seconds)) if known else UNKNOWN_LIFE_SECONDS)
    return Token(Secret(text), expires, str(claims.get("sub", "")))


def _claims(text: str) -> dict[str, Any]:
    """Return the claims of a JWT; {} for an opaque token."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _exec_credential(output: bytes) -> tuple[str, object] | None:
    """Return (token, expirationTimestamp) from a command's JSON; None without a token."""
    try:
        printed = json.loads(output)
        printed = printed.get("status", printed)
        return str(printed["token"]), printed.get("expirationTimestamp")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _instant(text: object, what: str) -> float | None:
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise failed(f"{what} printed an expirationTimestamp that is not RFC 3339", None) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def failed(detail: str, remedy: str | None) -> WireError:
    """Return the error of a sign-in for which no token was available."""
    return WireError("AUTHENTICATION_FAILED", detail, remedy)
