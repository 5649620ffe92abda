"""Which rights allow which commands, and what ACLs say: rules without a cluster."""

import pytest

from recovery.inspect.rights import (
    ACL_ALL,
    CLUSTER_ALTER,
    IDS_WRITE,
    NEEDS,
    Acl,
    ByAcls,
    allowed_commands,
    by_acls,
    missing_right,
)

READ, WRITE = 3, 4
ME = "User:me"


def acl(
    name: str, operation: int = WRITE, *, who: str = ME, prefixed: bool = False, deny: bool = False
) -> Acl:
    return Acl(name, prefixed, who, operation, deny)


@pytest.mark.parametrize(
    ("acls", "said"),
    [
        ([], ByAcls(False)),
        ([acl("*")], ByAcls(True, ("*",))),
        ([acl("*", ACL_ALL)], ByAcls(True, ("*",))),
        ([acl("*", who="User:*")], ByAcls(True, ("*",))),
        ([acl("*", READ), acl("*", who="User:other")], ByAcls(False)),
        ([acl("*", prefixed=True)], ByAcls(False, ("**",))),  # ids that begin with an asterisk
        ([acl("app-", prefixed=True), acl("one")], ByAcls(False, ("app-*", "one"))),
        ([acl("*"), acl("one", deny=True)], ByAcls(False, ("*",), ("one",))),
        ([acl("*"), acl("*", ACL_ALL, who="User:*", deny=True)], ByAcls(False, (), ("*",))),
    ],
)
def test_what_acls_say(acls: list[Acl], said: ByAcls) -> None:
    assert by_acls(acls, ME, WRITE) == said


def test_a_command_needs_all_its_rights() -> None:
    everything = {right: True for needed in NEEDS.values() for right in needed}
    assert all(one.allowed for one in allowed_commands(everything))
    for right in everything:
        touched = {c for c, needed in NEEDS.items() if right in needed}
        for sees, said in ((False, False), (None, None)):
            found = {o.command: o for o in allowed_commands(everything | {right: sees})}
            assert {c for c, o in found.items() if o.allowed is not True} == touched
            assert {found[c].allowed for c in touched} == {said}
            named = {found[c].missing if sees is False else found[c].unknown for c in touched}
            assert named == {(right,)}
    both = {o.command: o for o in allowed_commands({CLUSTER_ALTER: False, IDS_WRITE: None})}
    abort = both["txn abort, txn resolve under an idle id"]
    assert (abort.allowed, abort.missing) == (False, (CLUSTER_ALTER,))
    assert IDS_WRITE in abort.unknown


def test_no_command_is_allowed_that_sends_what_no_broker_answers() -> None:
    everything = {right: True for needed in NEEDS.values() for right in needed}
    for request in ("ListTransactions", "DescribeTransactions", "DescribeProducers"):
        found = {o.command: o for o in allowed_commands(everything, [request])}
        for command in ("status, txn hanging", "why", "check", "txn fence"):
            assert (found[command].allowed, found[command].unanswered) == (False, (request,))
        assert found["lso"].allowed
    found = {o.command: o for o in allowed_commands(everything, ["WriteTxnMarkers"])}
    denied = {name for name, one in found.items() if not one.allowed}
    assert denied == {"txn abort, txn resolve", "txn abort, txn resolve under an idle id"}
    listing = {o.command: o.allowed for o in allowed_commands(everything, ["ListTransactions"])}
    assert (listing["producers"], listing["txn list, txn describe"]) == (True, False)


def test_a_refusal_names_the_right() -> None:
    assert "ALTER on the cluster" in (missing_right("CLUSTER_AUTHORIZATION_FAILED", "t:0") or "")
    said = missing_right("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "billing-1")
    assert said == "grant WRITE on transactional id billing-1"
    assert missing_right("GROUP_AUTHORIZATION_FAILED", "g") == "grant READ on group g"
    assert missing_right("INVALID_PRODUCER_EPOCH", "billing-1") is None
