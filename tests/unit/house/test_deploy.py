"""The files of docs/deploy: metrics and commands that they name exist, and manifests are valid."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from eoctl.render.watch_words import HELP, SERIES_HELP
from recovery.watch.check_rules import Thresholds
from tests.docs.test_examples import parse

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
DASHBOARD = DEPLOY / "grafana" / "eoctl.json"
METRICS = {**HELP, **SERIES_HELP}


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


@pytest.mark.parametrize("file", ["grafana/eoctl.json", "prometheus/eoctl-rules.yaml"])
def test_each_metric_exists(file: str) -> None:
    named = set(re.findall(r"\beoctl_\w+", (DEPLOY / file).read_text()))
    assert len(named) > 5
    assert named <= set(METRICS)


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        box = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(box["x"], box["x"] + box["w"])
            for y in range(box["y"], box["y"] + box["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("file", sorted((DEPLOY / "kubernetes").iterdir()), ids=lambda f: f.name)
def test_manifests_are_valid(file: Path, version: str) -> None:
    for manifest in yaml.safe_load_all(file.read_text()):
        kubernetes_validate.validate(manifest, version, strict=True)


def commands() -> list[str]:
    """The command lines of eoctl that the files start, without the program."""
    found = []
    for unit in (DEPLOY / "systemd").glob("*.service"):
        found += re.findall(r"^ExecStart=/usr/local/bin/eoctl (.*)$", unit.read_text(), re.M)
    found += re.findall(r"/usr/local/bin/eoctl (.*?) >", (DEPLOY / "cron" / "eoctl").read_text())
    for file in (DEPLOY / "kubernetes").iterdir():
        found += [
            shlex.join(yaml.safe_load(args))
            for args in re.findall(r"^ *args: (.*)$", file.read_text(), re.M)
        ]
    rules = (DEPLOY / "prometheus" / "eoctl-rules.yaml").read_text()
    found += re.findall(r"(?:next|runbook): eoctl (.*)$", re.sub(r"\{\{.*?\}\}", "x", rules), re.M)
    return found


def alerts() -> list[dict[str, Any]]:
    """The alerting rules, as Prometheus reads them."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "eoctl-rules.yaml").read_text())
    return [alert for group in rules["groups"] for alert in group["rules"]]


def test_each_alert_names_a_page_that_exists() -> None:
    for alert in alerts():
        page = alert["annotations"]["runbook"]
        name = page.removeprefix("eoctl runbook ")
        path = page.removeprefix("docs/") if name == page else f"runbooks/{name}.md"
        assert (DEPLOY.parent / path).is_file(), alert["alert"]


def test_each_rule_of_check_has_one_alert_that_speaks_of_it() -> None:
    rules = {*Thresholds.__struct_fields__} - {"verdicts"} | {
        "verdicts.orphan",
        "doctor.few-copies",
    }
    selectors = [
        re.findall(r'eoctl_check_rule\{rule([!=~]+)"(.*?)", result="finding"', alert["expr"])
        for alert in alerts()
    ]
    named = [found for [found] in filter(None, selectors)]
    assert len(named) == 7
    for rule in rules:
        fires = [bool(re.fullmatch(text, rule)) != (sign == "!~") for sign, text in named]
        assert fires.count(True) == 1, rule
    words = {word for _, text in named for word in text.split("|") if not word.endswith("[.].+")}
    assert words <= rules, "no rule is called so"


def test_each_alert_is_tested() -> None:
    text = (DEPLOY / "prometheus" / "eoctl-rules-test.yaml").read_text()
    fired = {
        case["alertname"]
        for group in yaml.safe_load(text)["tests"]
        for case in group["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert {alert["alert"] for alert in alerts()} == fired


def test_each_command_exists() -> None:
    assert len(commands()) > 10
    for line in commands():
        parse(shlex.split(line), line)


def test_the_containerfile_is_not_root_and_copies_what_exists() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    stages = text.split("\nFROM ")[1:]
    assert len(stages) == 2
    assert "\nUSER 10001:10001\n" in stages[1]
    assert "\nRUN pip" not in stages[1]
    for file in re.findall(r"[\w-]+\.lock", text):
        assert (DEPLOY.parents[1] / file).exists()
