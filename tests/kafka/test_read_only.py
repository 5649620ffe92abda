"""No command that looks sends a request that changes anything: decoded on the wire, all of them.

Every command of the tree is in one of three lists, so a new one cannot be left out.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from docs.commands import commands
from eoctl.lab.breaks import break_
from eoctl.lab.breaks.truth import GroundTruth
from eoctl.lab.cluster import Lab
from tests.conftest import Tried
from tests.kafka.command import FAST, environment, eoctl
from tests.kafka.relay import relayed

TOPIC, PLACE, ID, GROUP, FOLDER = "TOPIC", "TOPIC:0", "ID", "GROUP", "FOLDER"
OPEN = ("--pid", "PID", "--start-offset", "START")
HELD = (*FAST, "-o", "json")
LOOKS: Mapping[str, tuple[str, ...]] = {
    "status": HELD,
    "why": (TOPIC, *HELD),
    "lso": (TOPIC,),
    "txn list": ("--summary",),
    "txn describe": (ID,),
    "txn hanging": (*HELD, "--plan", f"{FOLDER}/plan.json"),
    "txn history": (ID,),
    "txn records": (PLACE, *OPEN),
    "producers": (TOPIC, "--resolve"),
    "offsets show": ("--group", GROUP, "--count"),
    "offsets history": (GROUP,),
    "offsets count": (PLACE, "earliest", "lso"),
    "restart plan": ("--group", GROUP, "--topic", TOPIC, "--to-earliest"),
    "state rebuild": (TOPIC, "--format", "plain", "--at", "lso", "--output", f"{FOLDER}/state"),
    "audit sequences": (TOPIC,),
    "audit transactions": (TOPIC,),
    "audit duplicates": (TOPIC, "--by", "value"),
    "dedup": (TOPIC, "OUTPUT", "--by", "value", "--create"),
    "runbook": (),
    "doctor": (),
    "check": HELD,
    "bundle create": (f"{FOLDER}/bundle", *FAST),
    "context test": (),
}
"""Commands that ask a cluster, with words that make them ask much."""
STATUS = {"state rebuild": (3,), "txn resolve": (4,)}
"""Of those that say what is not whole, and that another remedy fits, after they have looked."""
PLANS: Mapping[str, tuple[str, ...]] = {
    "txn abort": (PLACE, *OPEN, *FAST),
    "txn fence": (ID, "--owner-is-gone", *FAST),
    "txn resolve": (PLACE, "--outcome", "abort", "--without-proof", *OPEN, *FAST),
    "txn apply": (f"{FOLDER}/plan.json",),
}
"""Commands that act, without --execute."""
ELSEWHERE = {
    "their plans have tests of their own": (
        *("txn commit", "txn salvage", "restart apply", "restart undo", "restart verify"),
        *("merge plan", "merge replay", "merge verify", "state deliver", "audit mirror"),
        *("audit end-to-end", "audit mirror-transactions"),
    ),
    "ask as those above do, until they are stopped": ("exporter", "tui", "mcp"),
    "asks no cluster": (
        *("restart show", "restart checkpoint", "state compare", "state show"),
        *("journal list", "journal show", "journal resume", "journal undo"),
        *("jobs list", "jobs show", "jobs cancel", "jobs export", "bundle open", "report"),
        *("context list", "context use", "context show", "context add", "explain", "completion"),
        *("lab up", "lab down", "lab status", "lab break", "lab topic", "lab job"),
        *("lab drill", "lab demo", "lab twin", "lab rehearse", "lab mirror"),
    ),
}


def test_no_command_is_left_out() -> None:
    listed = [*LOOKS, *PLANS, *(name for names in ELSEWHERE.values() for name in names)]
    assert sorted(listed) == sorted(command.name for command in commands())


@pytest.fixture(scope="module")
def broken(lab1: Lab) -> Mapping[str, str]:
    """An orphan, a live id that holds a group's commit, and the words of the tables."""
    [orphan] = break_(lab1, "orphan", hold=False)
    [live] = break_(lab1, "offsets-pending", hold=False)
    return words_of(orphan, live)


def words_of(orphan: GroundTruth, live: GroundTruth) -> Mapping[str, str]:
    return {
        TOPIC: orphan.topic,
        PLACE: f"{orphan.topic}:{orphan.partition}",
        ID: live.transactional_id or "",
        GROUP: live.group or "",
        "OUTPUT": f"{orphan.topic}-out",
        "PID": str(orphan.producer_id),
        "START": str(orphan.start_offset),
    }


@pytest.mark.parametrize("name", [*LOOKS, *PLANS])
def test_a_command_that_looks_sends_only_requests_that_look(
    lab1: Lab, broken: Mapping[str, str], tmp_path: Path, tried: Tried, name: str
) -> None:
    named = [broken.get(w, w).replace(FOLDER, str(tmp_path)) for w in {**LOOKS, **PLANS}[name]]
    with relayed(lab1) as relay:
        env = environment(EOCTL_CONFIG=relay.config(tmp_path))
        if name == "txn apply":
            eoctl("txn", "hanging", *FAST, "--plan", named[0], "--context", "relayed", env=env)
        ran = eoctl(*name.split(), *named, "--context", "relayed", env=env)
        # 3: what other tests left in this lab may be unknown
        assert ran.status in STATUS.get(name, (0, 1, 3)), (ran.stdout, ran.stderr)
        tried("requests", len(relay.requests))
        assert relay.requests
        assert relay.changing == []
