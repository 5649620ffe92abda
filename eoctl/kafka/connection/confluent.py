"""The one adapter around confluent-kafka: producers, consumers and admin clients for records.

Each is made only after a wire connection has been accepted with the same settings: librdkafka names
most errors of addresses, TLS and credentials wrongly or never, and retries for good. Its log lines
go to the logger `eoctl.librdkafka`, which shows nothing by default.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eoctl.kafka.connection.cluster import Cluster
from eoctl.kafka.connection.failures import Deadline, WireError
from eoctl.kafka.connection.properties import ClientSettings, Properties, librdkafka_properties
from recovery.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

LOGGER = "eoctl.librdkafka"
FIRST_CONTACT_SECONDS = 10.0
TOKEN_SECONDS = 10.0

OnError = Callable[[WireError], None]


def producer(
    settings: ClientSettings,
    config: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> "Producer":
    """Return a confluent_kafka.Producer. config: librdkafka's properties; the settings win.

    on_error gets what librdkafka reports in poll(), as WireError with its error name. Blocks until
    a broker accepts us, so call it in a thread if a loop runs. Raises UnreachableError, and
    UsageError for a property that librdkafka refuses.
    """
    from confluent_kafka import Producer

    return _make(Producer, settings, config, on_error)


def consumer(
    settings: ClientSettings,
    config: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> "Consumer":
    """Return a confluent_kafka.Consumer that never commits on its own; otherwise as `producer`."""
    from confluent_kafka import Consumer

    safe = {"group.id": "eoctl", "enable.auto.commit": False}
    return _make(Consumer, settings, safe | dict(config or {}), on_error)


def admin(
    settings: ClientSettings,
    config: Mapping[str, Any] | None = None,
    on_error: OnError | None = None,
) -> "AdminClient":
    """Return a confluent_kafka.admin.AdminClient, as `producer`. Keep it for its futures."""
    from confluent_kafka.admin import AdminClient

    return _make(AdminClient, settings, config, on_error)


def _make(
    client: Any,
    settings: ClientSettings,
    config: Mapping[str, Any] | None,
    on_error: OnError | None,
) -> Any:
    from confluent_kafka import KafkaException

    tokens: list[WireError] = []  # why tokens were missing
    configuration = _configuration(
        settings, config, on_error, tokens
    )  # first: this may refuse a host map
    asyncio.run(_first_contact(settings))
    try:
        return client(configuration)
    except KafkaException as error:
        if tokens:
            raise UnreachableError(tokens[0].detail, remedy=tokens[0].remedy) from None
        raise UsageError(f"confluent-kafka refuses its settings: {error.args[0].str()}") from None


async def _first_contact(settings: ClientSettings) -> None:
    async with Cluster(settings, Deadline(FIRST_CONTACT_SECONDS)):
        pass


def _configuration(
    settings: ClientSettings,
    config: Mapping[str, Any] | None,
    on_error: OnError | None,
    tokens: list[WireError],
) -> dict[str, Any]:
    logger = _silent_logger()

    def heard(error: "KafkaError") -> None:
        logger.info("%s: %s", error.name(), error.str())
        if on_error is not None:
            on_error(WireError(error.name(), error.str()))

    properties: dict[str, Any] = Properties({"client.id": "eoctl"})
    properties |= config or {}
    properties |= librdkafka_properties(settings)
    properties |= {"logger": logger, "error_cb": heard}
    if properties.get("sasl.mechanism") == "OAUTHBEARER":
        properties["oauth_cb"] = _token_giver(settings, tokens)
    return properties


def _token_giver(
    settings: ClientSettings, failures: list[WireError]
) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """Return the callback for tokens: (token, expiry in epoch s, principal, extensions)."""
    from eoctl.kafka.connection.sasl import OAuthBearer

    mechanism = settings.sasl
    assert isinstance(mechanism, OAuthBearer)

    def give(_config: str) -> tuple[str, float, str, dict[str, str]]:
        try:
            token = mechanism.source.token_now(TOKEN_SECONDS)
        except WireError as error:
            failures.append(error)
            raise
        extensions = dict(mechanism.extensions)
        return token.text.reveal(), token.expires, token.principal, extensions

    return give


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger
