"""Rights on a real broker with ACLs: which commands they allow, and what a refusal names."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from eoctl.kafka.connection.properties import client_settings
from eoctl.kafka.write.exactly_once import Writer
from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from eoctl.lab.users import USERS
from recovery.errors import RefusedError
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.planting import as_published
from tests.kafka.relay import relayed
from tests.kafka.remedying import abort
from tests.kafka.rights import as_user

# check -> (resource, operation), as eoctl.lab.users grants them to each user
GRANTED: Mapping[str, tuple[str, str]] = {
    "topics: DESCRIBE": ("TOPIC", "DESCRIBE"),
    "topics: READ": ("TOPIC", "READ"),
    "topics: WRITE": ("TOPIC", "WRITE"),
    "topics: DESCRIBE_CONFIGS": ("TOPIC", "DESCRIBE_CONFIGS"),
    "__transaction_state: READ": ("TOPIC", "READ"),
    "__consumer_offsets: READ": ("TOPIC", "READ"),
    "transactional ids: DESCRIBE": ("TRANSACTIONAL_ID", "DESCRIBE"),
    "transactional ids: WRITE": ("TRANSACTIONAL_ID", "WRITE"),
    "groups: DESCRIBE": ("GROUP", "DESCRIBE"),
    "groups: READ": ("GROUP", "READ"),
    "groups: DELETE": ("GROUP", "DELETE"),
    "cluster: DESCRIBE": ("CLUSTER", "DESCRIBE"),
    "cluster: ALTER": ("CLUSTER", "ALTER"),
    "cluster: DESCRIBE_CONFIGS": ("CLUSTER", "DESCRIBE_CONFIGS"),
}
ACTING = {
    "txn abort, txn resolve",
    "txn abort, txn resolve under an idle id",
    "txn fence",
    "restart apply",
    "restart undo",
    "state deliver",
    "dedup",
    "merge replay",
}
OF_TRANSACTIONS = {
    "txn list, txn describe",
    "txn list --summary",
    "offsets history",
    "status, txn hanging",
    "why",
    "check",
    "doctor",
}
OF_RECORDS = {
    "producers",
    "offsets show --lag-seconds",
    "offsets history",
    "txn history",
    "status, txn hanging",
    "why",
    "check",
    "doctor",
    "offsets count, audit, state rebuild",
    "restart plan",
}
REFUSED = {
    "operator": set[str](),
    "viewer": ACTING,
    "no-txn": ACTING | OF_TRANSACTIONS,
    "no-topic-read": ACTING | OF_RECORDS,
}


@pytest.mark.parametrize("user", REFUSED)
def test_which_commands_the_rights_of_a_user_allow(secure_lab: Lab, used: str, user: str) -> None:
    ran = as_published(as_user(secure_lab, user, "context", "test", "-o", "json"), "context-test")
    assert ran.status == 0, ran.stderr
    rights = {r["check"]: r["sees"] for r in ran.rows if r["kind"] == "right"}
    expected = {c: op in USERS[user].get(kind, ()) for c, (kind, op) in GRANTED.items()}
    assert rights == {"connect": True, **expected}
    commands = {r["check"]: r for r in ran.rows if r["kind"] == "command"}
    assert {c for c, r in commands.items() if r["sees"] is not True} == REFUSED[user]
    assert {r["sees"] for c, r in commands.items() if c in REFUSED[user]} <= {False}
    if user == "viewer":
        assert commands["txn fence"]["detail"] == "not granted: transactional ids: WRITE"
    table = as_user(secure_lab, user, "context", "test")
    assert "eoctl txn fence" in table.stdout


def test_without_read_on_their_log_contested_ids_are_unknown(secure_lab: Lab, used: str) -> None:
    ran = as_user(secure_lab, "no-topic-read", "status", *FAST, "-o", "json")
    assert (ran.status, ran.json["contests"]) == (3, None)
    [error] = [e for e in ran.json["errors"] if "contested" in e["detail"]]
    assert (error["topic"], error["error"]) == ("__transaction_state", "TOPIC_AUTHORIZATION_FAILED")
    assert "grant READ on that topic" in error["detail"]
    checked = as_user(secure_lab, "no-topic-read", "check", *FAST, "-o", "json")
    [rule] = [r for r in checked.rows if r["rule"] == "contested_ids"]
    assert (rule["ok"], rule["observed"]) == (None, None)
    seen = as_user(secure_lab, "viewer", "status", *FAST, "-o", "json")
    assert isinstance(seen.json["contests"], list)


def test_what_hidden_rights_are_is_unknown(secure_lab: Lab, used: str) -> None:
    """Without DESCRIBE on the cluster its rights and the ACLs are hidden: never told as granted."""
    ran = as_user(secure_lab, "nobody", "context", "test", "-o", "json")
    rights = {r["check"]: r for r in ran.rows if r["kind"] == "right"}
    assert {c for c, r in rights.items() if r["sees"]} == {"connect"}
    assert rights["cluster: DESCRIBE"]["sees"] is False
    for check in ("cluster: ALTER", "transactional ids: WRITE", "groups: READ"):
        assert rights[check]["sees"] is None
    assert "grant that, then ask again" in rights["cluster: ALTER"]["detail"]
    assert "kafka-acls.sh" in rights["transactional ids: WRITE"]["detail"]
    assert not [r for r in ran.rows if r["kind"] == "command" and r["sees"]]


def test_a_refused_remedy_names_the_right(secure_lab: Lab) -> None:
    """All that judging needs is granted to the viewer; what acting needs is not."""
    [orphan] = break_(secure_lab, "orphan", hold=False)
    [live] = break_(secure_lab, "open", hold=False)
    name = live.transactional_id or ""
    act = ("--execute", "--yes")
    for words, right in (
        (abort(orphan), "grant ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION)"),
        (
            ("txn", "fence", name, "--owner-is-gone", *FAST),
            f"grant WRITE on transactional id {name}",
        ),
    ):
        refused = as_user(secure_lab, "viewer", *words, *act)
        assert refused.status == 4, refused.stdout + refused.stderr
        assert right in refused.stderr
        done = as_user(secure_lab, "operator", *words, *act)
        assert done.status == 0, done.stderr


def test_a_refused_copy_names_the_right(secure_lab: Lab, used: str) -> None:
    """What `state deliver`, `dedup` and `merge replay` write with."""
    settings = client_settings(secure_lab.client_properties("viewer"))
    writer = Writer(settings, f"{used}-copy", f"{used}-group", timeout_ms=10_000)
    try:
        with pytest.raises(RefusedError) as refused:
            writer.open()
    finally:
        writer.close()
    assert f"grant WRITE on transactional id {used}-copy" in refused.value.sentence


def test_context_test_changes_nothing(lab1: Lab, tmp_path: Path) -> None:
    """A broker without an authorizer allows all; what was sent to it only asks."""
    with relayed(lab1) as relay:
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        ran = eoctl("context", "test", "--context", "relayed", "-o", "json", env=env)
        assert ran.status == 0, ran.stderr
        assert relay.requests
        assert relay.changing == []
    rights = {r["check"]: r for r in ran.rows if r["kind"] == "right"}
    assert rights["transactional ids: WRITE"]["sees"] is True
    assert "no authorizer" in rights["transactional ids: WRITE"]["detail"]
    assert rights["cluster: ALTER"]["sees"] is True
