"""What pages say of the reader's own clusters and contexts, on a lab in their place."""

import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from eoctl.lab.cluster import Lab
from eoctl.lab.record import LabSpec
from tests.docs.pages import ROOT, files, follows
from tests.kafka.conftest import MakeTopic
from tests.kafka.merging import transactional
from tests.kafka.reading import Reading
from tests.zookeeper import free_port

SERVERS = "b1:9092,b2:9092"
PROMETHEUS = "/var/lib/node_exporter"


@pytest.fixture(scope="module")
def lab1(start_lab: Callable[[LabSpec], Lab]) -> Lab:
    """One of this file's own: what other tests leave in the shared one may be unknown."""
    return start_lab(LabSpec(name="pages"))


@pytest.fixture
def orders(lab1: Lab, topic: MakeTopic) -> str:
    """A topic that `orders-*` names, with a transaction: no coordinator is unknown afterwards."""
    name = topic(lab1, name="orders")
    writer = transactional(lab1, name)
    writer.begin_transaction()
    writer.produce(name, b"order")
    writer.commit_transaction(30)
    return name


def own_cluster(it: Reading, lab: Lab, folder: Path) -> None:
    """The contexts `prod-eu` and `prod-us`, `client.properties` and the servers are a lab's."""
    it.contexts({"prod-eu": lab, "prod-us": lab})
    it.names |= {SERVERS: lab.bootstrap_servers, PROMETHEUS: str(folder)}
    Path("client.properties").write_text(f"bootstrap.servers={lab.bootstrap_servers}\n")


@follows("README.md", "Your own cluster")
def test_readme(it: Reading, lab1: Lab, orders: str, tmp_path: Path) -> None:
    own_cluster(it, lab1, tmp_path)
    assert orders in it.run("--bootstrap-server", 0, None, "--all").stdout
    assert orders in it.run("--command-config", 0, None, "--all").stdout
    piped = it.run("--context prod-eu lso 'orders-*' -o json | jq", 0).stdout
    assert f'"topic": "{orders}"' in piped
    assert it.next("--context prod-eu check").status in (0, 1)  # of what this file's tests left
    assert 'eoctl_up{context="prod-eu"} 1' in Path("eoctl.prom").read_text()
    it.run("--context prod-eu bundle create", 0)
    assert Path("incident.eoctl").stat().st_size


@follows("docs/configuration.md", "Four ways to name it")
def test_ways_to_name_a_cluster(it: Reading, lab1: Lab, orders: str, tmp_path: Path) -> None:
    own_cluster(it, lab1, tmp_path)
    for begins in ("--bootstrap-server", "--command-config", "--context prod-eu"):
        assert orders in it.run(begins, 0, None, "--all").stdout


@follows("docs/configuration.md", "The configuration file")
def test_contexts_are_added(it: Reading, lab1: Lab, secure_lab: Lab, tmp_path: Path) -> None:
    """By questions on a terminal, and by options: over TLS, with a password of the environment."""
    it.contexts({})
    printed = it.typed(
        "context add prod-eu",
        [
            ("Servers", f"{lab1.bootstrap_servers}\n"),
            ("Security", "none\n"),
            ("Read-only", "yes\n"),
        ],
    )
    assert "eoctl lso" in printed
    (tmp_path / "other.toml").touch()  # the page shows two ways for one name
    it.env["EOCTL_CONFIG"] = str(tmp_path / "other.toml")
    properties = secure_lab.client_properties("viewer")
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"
    it.names |= {
        "b1:9093,b2:9093": properties["bootstrap.servers"],
        "sasl.username=eoctl": f"sasl.username={properties['sasl.username']}",
    }
    # the page's certificates are of an authority that the system trusts
    it.env |= {
        "KAFKA_PASSWORD": properties["sasl.password"],
        "SSL_CERT_FILE": properties["ssl.ca.location"],
    }
    it.run("context add prod-eu", 0)
    [(_, shown)] = files(ROOT / "docs" / "configuration.md", "toml")
    wanted = tomllib.loads(shown)["contexts"]["prod-eu"]["properties"]
    added = tomllib.loads((tmp_path / "other.toml").read_text())["contexts"]["prod-eu"]
    assert added["read_only"]
    assert wanted.items() <= added["properties"].items()


@follows("docs/check.md", "`eoctl check`: for cron, Prometheus and Nagios")
@pytest.mark.usefixtures("orders")
def test_a_line_of_a_crontab(it: Reading, lab1: Lab, tmp_path: Path) -> None:
    own_cluster(it, lab1, tmp_path)
    assert it.next("--context prod-eu check").status in (0, 1)
    assert 'eoctl_up{context="prod-eu"} 1' in Path("eoctl.prom").read_text()


@follows("docs/exporter.md", "`eoctl exporter`: a Prometheus endpoint")
def test_an_exporter_until_it_is_scraped(it: Reading, lab1: Lab, tmp_path: Path) -> None:
    """The page's `curl` fetches what both exporters serve, each at a free port."""
    own_cluster(it, lab1, tmp_path)
    ended = 130
    served = it.typed(
        "exporter --context prod-eu",
        [("metrics at http://", "\x03")],
        *("--listen", "127.0.0.1:0"),
        status=ended,
    )
    assert "metrics at http://" in served
    address = f"127.0.0.1:{free_port()}"
    it.names["127.0.0.1:9465"] = address
    curl = it.left.pop()
    scraped = ""

    def scrape(_: str) -> str:
        nonlocal scraped
        scraped = it.shell(it.line(curl)).stdout
        return "\x03"

    it.typed("exporter --context prod-eu,prod-us", [("metrics at http://", scrape)], status=ended)
    assert 'eoctl_exporter_looks_total{context="prod-us",' in scraped


@follows("docs/tui.md", "The dashboard: `eoctl tui`")
@pytest.mark.usefixtures("orders")
def test_a_dashboard_until_q(it: Reading, lab1: Lab, tmp_path: Path) -> None:
    own_cluster(it, lab1, tmp_path)
    made = it.shell("eoctl --context prod-eu bundle create incident.eoctl")
    assert made.status == 0, made.stderr
    until_q = [("1 Over", ""), (r"\d+s old", "q")]
    it.typed("--context prod-eu tui", until_q)
    it.typed("--context prod-eu tui --record", until_q)
    assert len(Path("today.jsonl").read_text().splitlines()) > 1
    night = Path("night.jsonl")

    def once_answered(_: str) -> str:
        end = time.monotonic() + 30
        while '"partitions":' not in night.read_text():
            assert time.monotonic() < end, "nothing is recorded"
            time.sleep(0.2)
        return "\x03"

    headless = [("recording into", once_answered)]
    it.typed("--context prod-eu tui --record night.jsonl", headless, status=130)
    it.typed("tui --replay", until_q)
    it.typed("--from incident.eoctl tui", until_q)
