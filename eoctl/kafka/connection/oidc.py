"""Get tokens from an OIDC endpoint with client credentials, over HTTPS (standard library only)."""

import base64
import json
from dataclasses import dataclass

from eoctl.kafka.connection.credentials import Secret
from eoctl.kafka.connection.oauth import CachedToken, failed, made_token
from eoctl.kafka.connection.sasl import Token
from eoctl.kafka.connection.tls import Tls

MOST_BYTES = 1 << 20  # of an answer


@dataclass(eq=False)
class ClientCredentials(CachedToken):
    """RFC 6749 section 4.4 over HTTPS; HTTPS_PROXY and NO_PROXY are honoured.

    urlencode: encode id and secret before Basic, as the RFC wants and Java's default does not.
    """

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None
    urlencode: bool
    tls: Tls

    @property
    def what(self) -> str:
        return f"the token endpoint {self.url.partition('?')[0]}"

    def _fetch(self, seconds: float) -> Token:
        import http.client
        import urllib.error
        import urllib.parse
        import urllib.request

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """Sends the credentials only to the endpoint that was named."""

            def redirect_request(self, *args: object) -> None:
                return None

        pair = [self.client_id, self.client_secret.reveal()]
        if self.urlencode:
            pair = [urllib.parse.quote_plus(part) for part in pair]
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        request = urllib.request.Request(  # noqa: S310 - https only, see mechanisms.py
            self.url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": "Basic " + base64.b64encode(":".join(pair).encode()).decode(),
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self.tls.context), NoRedirect
        )
        try:
            try:
                with opener.open(request, timeout=seconds) as answer:
                    status, body = answer.status, answer.read(MOST_BYTES)
            except urllib.error.HTTPError as error:
                with error:
                    status, body = error.code, error.read(MOST_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            text = self.client_secret.hidden_in(str(getattr(reason, "verify_message", reason)))
            raise failed(
                f"{self.what} did not answer: {text or type(error).__name__}",
                "check the address, HTTPS_PROXY, and https.ca.location for a private CA",
            ) from None
        if status != 200:
            their_reason = self.client_secret.hidden_in(_oauth_error(body))
            raise failed(
                f"{self.what} answered HTTP {status}{f': {their_reason}' if their_reason else ''}",
                "check the client id, secret and scope",
            )
        try:
            answered = json.loads(body)
            text = answered["access_token"]
        except (ValueError, KeyError, TypeError):
            raise failed(f"{self.what} answered without an access_token", None) from None
        return made_token(str(text), answered.get("expires_in"))


def _oauth_error(body: bytes) -> str:
    """Return error and error_description (RFC 6749 section 5.2), "" if missing."""
    try:
        error = json.loads(body)
        words = [str(error[k]) for k in ("error", "error_description") if error.get(k)]
    except (ValueError, AttributeError, TypeError):
        return ""
    return ": ".join(words)[:300]
