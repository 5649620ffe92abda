"""What the commands print on a real lab is what the published schemas say, in every round."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.kafka.command import FAST, environment, eoctl

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def published(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.v1.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def troubled(lab1: Lab) -> Lab:
    break_(lab1, "open", transactional_id="schema-open")
    break_(lab1, "orphan")
    break_(lab1, "zombie")
    break_(lab1, "offsets-pending", group="schema-group")
    return lab1


COMMANDS = {
    "status": ["status", *FAST],
    "why": ["why", *FAST],
    "lso": ["lso", "--all", "--internal"],
    "txn-list": ["txn", "list"],
    "txn-list-summary": ["txn", "list", "--summary", "--sample-interval", "0.3s"],
    "txn-describe": ["txn", "describe", "schema-open", "nobody"],
    "txn-hanging": ["txn", "hanging", "--all", *FAST],
    "txn-history": ["txn", "history", "schema-open"],
    "producers": ["producers", "--resolve"],
    "producers-summary": ["producers", "--summary", "--resolve"],
    "offsets-show": ["offsets", "show", "--lag-seconds"],
    "offsets-history": ["offsets", "history", "schema-group"],
    "context-list": ["context", "list"],
    "context-show": ["context", "show"],
    "context-test": ["context", "test"],
    "lab-status": ["lab", "status"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_as_published(troubled: Lab, name: str) -> None:
    env = environment(EOCTL_CONTEXT=f"lab-{troubled.name}")
    ran = eoctl(*COMMANDS[name], "-o", "json", env=env)
    assert ran.status in (0, 1, 3), ran.stderr
    jsonschema.validate(ran.json, published(name))
    assert ran.json["schema"] == f"eoctl.{name}/v1"
    assert ran.rows
    assert ran.json["complete"] == (ran.status != 3)


@pytest.mark.parametrize("name", ["lso", "txn-list", "producers", "context-list"])
def test_other_formats_hold_the_same_rows(troubled: Lab, name: str) -> None:
    """JSON lines and CSV: what does not change between two looks is the same."""
    env = environment(EOCTL_CONTEXT=f"lab-{troubled.name}")
    rows = eoctl(*COMMANDS[name], "-o", "json", env=env).rows
    *lines, rest = eoctl(*COMMANDS[name], "-o", "jsonl", env=env).stdout.splitlines()
    moving = ("age_seconds", "blocking", "last_timestamp")

    def still(row: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in row.items() if key not in moving}

    assert [still(json.loads(line)) for line in lines] == [still(row) for row in rows]
    assert "rows" not in json.loads(rest)
    assert json.loads(rest)["complete"]
    text = eoctl(*COMMANDS[name], "-o", "csv", env=env).stdout
    table = list(csv.DictReader(io.StringIO(text)))
    assert len(table) == len(rows)
    assert list(table[0]) == list(rows[0])
    for cells, row in zip(table, rows, strict=True):
        for key, value in still(row).items():
            if isinstance(value, int) and not isinstance(value, bool):
                assert cells[key] == str(value)
            elif value is None:
                assert cells[key] == ""


@pytest.mark.long
def test_lab_commands_are_as_published(lab_state: Path) -> None:
    env = environment(EOCTL_STATE_DIR=str(lab_state))
    up = eoctl("lab", "up", "--name", "published", "-o", "json", env=env, timeout=120)
    assert up.status == 0, up.stderr
    try:
        jsonschema.validate(up.json, published("lab-up"))
        (broker,) = up.rows
        assert broker["state"] == "ready"
        assert "lab-published" in up.stderr  # what to type next
        again = eoctl("lab", "up", "--name", "published", "-o", "json", env=env, timeout=120)
        assert again.rows == up.rows
        context = ("--context", "lab-published")
        assert (
            eoctl("lso", *context, "-o", "json", env=env).json["cluster_id"]
            == (broker["cluster_id"])
        )
        made = eoctl("lab", "break", "open", "--name", "published", "--topic", "a", env=env)
        jsonschema.validate(made.json, published("lab-break"))
        truth = made.rows[0]
        held = eoctl("lso", *context, "-o", "json", env=env).rows
        assert [(row["topic"], row["last_stable_offset"]) for row in held] == [
            ("a", truth["last_stable_offset"])
        ]
        needs = eoctl("lab", "break", "overdue", "--name", "published", env=env)
        assert needs.status == 4
        assert "--set transaction.abort.timed.out" in needs.stderr
        wrong = eoctl("lab", "break", "open", "--name", "published", "--later", "x", env=env)
        assert wrong.status == 2
        assert "--later" in wrong.stderr
        assert eoctl("lab", "break", "nothing", "--name", "published", env=env).status == 2
        other = eoctl("lab", "up", "--name", "published", "--brokers", "2", env=env)
        assert other.status == 4
    finally:
        down = eoctl("lab", "down", "--name", "published", "-o", "json", env=env)
    assert down.status == 0, down.stderr
    jsonschema.validate(down.json, published("lab-down"))
    assert down.rows[0]["data"] == "deleted"
    gone = eoctl("lab", "down", "--name", "published", env=env)
    assert gone.status == 2
    assert eoctl("lab", "up", "--set", "nonsense", env=env).status == 2
    assert eoctl("lab", "up", "--brokers", "9", env=env).status == 2
