"""`eoctl help TOPIC`: how all commands are typed, a few lines each.

`eoctl explain` says what the words in their output mean.
"""

from collections.abc import Mapping

from eoctl.render import explain
from recovery.errors import Exit, UsageError
from recovery.quoting import quoted

STATUSES: Mapping[Exit, str] = {
    status: explain.means(str(int(status)), "exit status") for status in Exit
}
TOPICS: Mapping[str, str] = {
    "exit-status": "\n".join(f"{int(status):>3}  {means}" for status, means in STATUSES.items()),
    "partitions": """\
orders           all partitions of a topic
orders:3         one partition
orders:0,2,5-9   several
'orders-*'       topics by a glob, in quotes
--regex RE       topics whose full name matches""",
    "durations": "90s, 15m, 2h, 3d, 1h30m, PT15M",
    "connection": """\
--bootstrap-server HOSTS   brokers
--command-config FILE      client properties, Java's or librdkafka's
-X KEY=VALUE               one more property; env:NAME or file:PATH keep a password out of sight
--context NAME             a cluster of the configuration file (`eoctl context list`)
--from BUNDLE              a bundle in the cluster's place
Put them before or after the command; after wins. EOCTL_CONTEXT and EOCTL_BOOTSTRAP_SERVER come
after them, then the configuration file.""",
    "acting": """\
A command that changes something only shows its plan; --dry-run asks for just that.
--execute            acts; on a terminal it asks first
--yes                acts without the question; needed where there is no terminal
--plan-sha256 HEX    acts only if the plan is the one that was read
Every change is in `eoctl journal list` before it is made.""",
    "extras": """\
data   offsets count, restart, merge, state, audit, dedup
sql    offsets and states in SQL databases
spark  --engine spark
lab    a local Kafka
serde  Avro and Protobuf records
msk    AWS_MSK_IAM
exporter  a Prometheus endpoint
web    tui --web: the dashboard in a browser
mcp    read-only tools for an agent
Install them so: pip install 'eoctl[data,sql]'""",
}


def topic(name: str) -> str:
    """Return the text of a topic. Raises UsageError, which names the topics, for any other word."""
    if name not in TOPICS:
        raise UsageError(
            f"no command and no topic {quoted(name)}",
            where="help",
            remedy=f"topics are {', '.join(TOPICS)}",
        )
    return TOPICS[name]
