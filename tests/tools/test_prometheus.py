"""Rules, dashboard and exposition, by promtool and by a Prometheus that scrapes a real exporter."""

import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from eoctl.lab.breaks import break_
from eoctl.lab.cluster import Lab
from tests.kafka.conftest import MakeTopic
from tests.kafka.test_exporter import exporting
from tests.started import started
from tests.tools.conftest import Program, Run
from tests.unit.house.test_deploy import DEPLOY, panels

RULES = DEPLOY / "prometheus"


def test_the_rules_are_valid_and_fire_when_they_should(program: Program, run: Run) -> None:
    promtool = program("promtool")
    assert "SUCCESS" in run([promtool, "check", "rules", RULES / "eoctl-rules.yaml"])
    assert "SUCCESS" in run([promtool, "test", "rules", RULES / "eoctl-rules-test.yaml"])


def test_each_query_of_the_dashboard_is_promql(program: Program, run: Run, tmp_path: Path) -> None:
    queries = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    rules = [
        {"record": f"query:{number}", "expr": re.sub(r"\$\w+", ".*", query)}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run([program("promtool"), "check", "rules", file])


def test_prometheus_scrapes_the_exporter(
    program: Program, lab1: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    prometheus, promtool = program("prometheus"), program("promtool")
    name = topic(lab1)
    break_(lab1, "orphan", topic=name, partition=0, hold=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        here = f"127.0.0.1:{free.getsockname()[1]}"
    with exporting("--bootstrap-server", lab1.bootstrap_servers) as exporter:
        looked = exporter.looked()
        lint = subprocess.run(
            [promtool, "check", "metrics"], input=exporter.get(), capture_output=True, text=True
        )
        assert (lint.returncode, lint.stdout, lint.stderr) == (0, "", "")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES / "eoctl-rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": "eoctl",
                    "static_configs": [{"targets": [exporter.url.split("/")[2]]}],
                }
            ],
        }
        file = tmp_path / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        words = [prometheus, f"--config.file={file}", f"--web.listen-address={here}"]
        words += [f"--storage.tsdb.path={tmp_path / 'tsdb'}", "--log.level=error"]
        with started(words, stderr=subprocess.PIPE, text=True):
            series = _until(
                lambda: _asked(here, f'query=eoctl_finding_age_seconds{{topic="{name}"}}')
            )
            assert series[0]["metric"]["verdict"] == "orphan"
            up = _until(lambda: _asked(here, 'query=up{job="eoctl"}'))
            assert up[0]["value"][1] == "1"
            names = {s["metric"]["__name__"] for s in _asked(here, 'query={__name__=~"eoctl_.*"}')}
            assert names == set(looked.samples)
            alerts = _until(lambda: _asked(here, 'query=ALERTS{rule="verdicts.orphan"}'))
            assert alerts[0]["metric"]["alertname"] == "EoctlTransactionFinding"


def _asked(address: str, query: str) -> list[dict[str, Any]]:
    path = urllib.parse.quote(query, safe="=")
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{path}", timeout=5) as answer:
        series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return series


def _until(ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Ask until there is an answer: Prometheus starts, and scrapes every second."""
    end = time.monotonic() + 60
    while True:
        try:
            if answer := ask():
                return answer
        except OSError:
            pass
        assert time.monotonic() < end, "no answer"
        time.sleep(0.3)
