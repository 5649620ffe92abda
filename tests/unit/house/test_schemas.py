"""What scripts read stays within v1: the published schemas, golden output, and both against rows.

golden-json/NAME.json is what `-o json` printed on a real lab; golden-json/fields.txt lists every
field with its types. Both are only ever added to.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.generate_schemas import ENVELOPES, FOLDER, paths, schema, text
from eoctl.cli.tree import TREE, Branch, Leaf
from eoctl.render.envelope import Envelope, json_lines
from recovery.row import ErrorRow, Row, json_names
from recovery.times import instant

GOLDEN = Path(__file__).parents[1] / "golden-json"
OUTPUTS = sorted(GOLDEN.glob("*.json"))
# They print no rows.
WITHOUT_ROWS = {
    "completion",
    "context-use",
    "exporter",
    "lab-demo",
    "lab-topic",
    "mcp",
    "report",
    "tui",
}


def commands(branch: Branch, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, node in branch.commands.items():
        if isinstance(node, Leaf):
            yield "-".join((*path, name))
        else:
            yield from commands(node, (*path, name))


def test_every_command_with_rows_has_a_schema() -> None:
    """Else: add its envelope to docs/generate_schemas.py and run `make schemas`."""
    assert set(commands(TREE)) - WITHOUT_ROWS - set(ENVELOPES) == set()


@pytest.mark.parametrize("name", ENVELOPES)
def test_published_schema_is_current(name: str) -> None:
    """Else: `make schemas`."""
    assert (FOLDER / f"{name}.v1.json").read_text(encoding="utf-8") == text(name)
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {
        f"{name}.v1.json" for name in ENVELOPES
    }


def _fields() -> dict[str, str]:
    return {f"{n} {path}": kinds for n in ENVELOPES for path, kinds in paths(schema(n)).items()}


def _golden_fields() -> dict[str, str]:
    lines = (GOLDEN / "fields.txt").read_text(encoding="utf-8").splitlines()
    return {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}


def test_fields_are_only_ever_added() -> None:
    """A field that was there is there, and has none but the types it had."""
    now = _fields()
    for path, kinds in _golden_fields().items():
        assert path in now, f"{path} is gone: within v1 no field is renamed or removed"
        assert set(now[path].split("|")) <= set(kinds.split("|")), f"{path} has a new type"


def test_new_fields_are_written_down() -> None:
    """Else: add the lines shown to golden-json/fields.txt, so that they stay from now on."""
    golden = _golden_fields()
    assert [f"{path} {kinds}" for path, kinds in _fields().items() if path not in golden] == []


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.stem)
def test_golden_output_is_valid(path: Path) -> None:
    output = json.loads(path.read_text(encoding="utf-8"))
    assert output["schema"] == f"eoctl.{path.stem}/v1"
    jsonschema.validate(output, schema(path.stem))
    jsonschema.validate(output, nothing_more(schema(path.stem)))  # every field is described


def nothing_more(found: Any) -> Any:
    """The schema, but without room for fields that it does not name."""
    if isinstance(found, list):
        return [nothing_more(item) for item in found]
    if not isinstance(found, dict):
        return found
    strict = {key: nothing_more(value) for key, value in found.items()}
    return strict | ({"additionalProperties": False} if "properties" in found else {})


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.stem)
def test_rows_give_the_golden_output_again(path: Path) -> None:
    """Read back into the row models and written again: the very same bytes."""
    output = path.read_text(encoding="utf-8")
    found = json.loads(output)
    model = ENVELOPES[path.stem].row
    common = ("schema", "cluster_id", "collected_at", "complete", "rows", "errors")
    again = Envelope(
        name=path.stem,
        cluster_id=found["cluster_id"],
        collected_at=_plain(found["collected_at"]),
        complete=found["complete"],
        rows=[_row(model, _plain(row)) for row in found["rows"]],
        errors=[ErrorRow.read(row) for row in found["errors"]],
        extra={key: value for key, value in found.items() if key not in common},
    )
    assert "".join(line + "\n" for line in json_lines(again)) == output


def _row(model: type[Row], output: dict[str, Any]) -> Row:
    """The row that was printed so."""
    names = dict(zip(json_names(model), model.__struct_fields__, strict=True))
    return model.read({names[key]: value for key, value in output.items()})


def _plain(value: Any) -> Any:
    """Timestamps as epoch milliseconds, as the row models hold them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value):
        return instant(value, 0)
    return value


def test_golden_outputs_hold_something() -> None:
    """Rows of every kind and errors among them, or the tests above hold nothing."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in OUTPUTS}
    assert all(envelope["rows"] for envelope in found.values())
    assert found["lso"]["errors"]
    assert any(row["blocking"] for row in found["lso"]["rows"])
    assert not found["txn-describe"]["complete"]
