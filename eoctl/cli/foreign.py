"""Words of other tools for what eoctl calls otherwise: kafka-*.sh, kcl, kubectl."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "hanging": "txn hanging",
    "find-hanging": "txn hanging",
    "describe-producers": "producers",
    "describe-transaction": "txn describe",
    "transaction": "txn",
    "transactions": "txn",
    "txns": "txn",
    "abort": "txn abort",
    "abort-transaction": "txn abort",
    "forceTerminateTransaction": "txn fence",
    "force-terminate": "txn fence",
    "fence": "txn fence",
    "describe": "why",
    "group": "offsets show --group",
    "groups": "offsets show",
    "consumer-group": "offsets show --group",
    "consumer-groups": "offsets show",
    "lag": "offsets show",
    "list-offsets": "lso --all",
    "reset-offsets": "restart",
    "get": "lso",
    "topics": "lso --all",
    "undo": "journal undo",
    "resume": "journal resume",
    "dashboard": "tui",
    "ui": "tui",
    "config": "context",
    "version": "--version",
}
"""Command of another tool → the words for it here."""

OPTIONS: Mapping[str, str] = {
    "--producer-epoch": "leave it out: the epoch is read from the partition",
    "--coordinator-epoch": "leave it out: it is read from the partition",
    "--producer-id": "here it is --pid",
    "--transactional-id": "give the id as a word: `eoctl txn describe ID`",
    "--transactionalId": "give the id as a word: `eoctl txn describe ID`",
    "--broker-id": "leave it out: every broker is asked",
    "--broker": "leave it out: every broker is asked",
    "--max-transaction-timeout": "here it is --long-after",
    "--consumer.config": "here it is --command-config",
    "--producer.config": "here it is --command-config",
    "--brokers": "here it is --bootstrap-server",
    "-b": "here it is --bootstrap-server",
    "--all-groups": "leave it out: all groups are shown unless some are named",
    "--all-topics": "leave it out: all topics are meant unless some are named",
    "--namespace": "here it is --context",
    "--json": "here it is -o json",
    "--format": "here it is -o json, csv, wide or name",
    "--force": "nothing is forced; --execute --yes acts without a question",
}
"""Option of another tool → what to write here."""
