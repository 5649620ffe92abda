"""The notebook of docs/notebooks, cell by cell, against a changelog of this test."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.cluster import Lab
from tests.kafka.conftest import MakeTopic
from tests.kafka.state_oracle import Rebuilt, dict_state, digest, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path("docs/notebooks/recovery.ipynb")


@pytest.mark.long
def test_the_notebook(spark: "SparkSession", lab1: Lab, topic: MakeTopic, tmp_path: Path) -> None:
    """Its session is that of the other tests. The state is a dict's, and so its last cell says."""
    changelog = topic(lab1, partitions=2, config={"cleanup.policy": "compact"})
    fill(lab1, changelog, seed=12, records=1500, keys=200, partitions=2)
    first, *cells = (
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text())["cells"]
        if cell["cell_type"] == "code"
    )
    assert [line.partition(" =")[0] for line in first.splitlines()] == [
        *("servers", "changelog", "output"),
    ]
    output = tmp_path / "state"
    names: dict[str, Any] = {"servers": lab1.bootstrap_servers, "changelog": changelog}
    names["output"] = str(output)
    for cell in cells:
        exec(cell, names)
    rebuilt = Rebuilt(output)
    expected, _ = dict_state(lab1, changelog, rebuilt.ends)
    assert rebuilt.digest == digest(expected)
    assert names["state"].count() == len(expected)
    assert (names["missing"], names["added"]) == (0, 0)
