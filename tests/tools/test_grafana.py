"""The dashboard against Grafana's own JSON Schemas, which are no package: a folder is named."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.tools.conftest import NOT_RUN
from tests.unit.house.test_deploy import DASHBOARD, panels


@pytest.fixture
def schema() -> Any:
    """schema(FILE, NAME): a definition of a file of github.com/grafana/grafana-foundation-sdk."""
    folder = os.environ.get("GRAFANA_SCHEMAS")
    if folder is None:
        pytest.skip(
            f"{NOT_RUN}GRAFANA_SCHEMAS does not name the folder jsonschema of a checkout of "
            "github.com/grafana/grafana-foundation-sdk"
        )

    def load(file: str, name: str) -> jsonschema.Draft7Validator:
        path = Path(folder) / f"{file}.jsonschema.json"
        text = {**json.loads(path.read_text()), "$ref": f"#/definitions/{name}"}
        return jsonschema.Draft7Validator(text)

    return load


def test_the_dashboard_follows_the_schema(schema: Any) -> None:
    schema("dashboard", "Dashboard").validate(json.loads(DASHBOARD.read_text()))
    for panel in panels():
        if panel["type"] == "row":
            continue
        kind = panel["type"].replace("-", "")
        schema(kind, "Options").validate(panel["options"])
        if (custom := panel["fieldConfig"]["defaults"].get("custom")) is not None:
            schema(kind, "FieldConfig").validate(custom)
        for target in panel["targets"]:
            schema("prometheus", "Dataquery").validate(target)
