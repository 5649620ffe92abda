"""Pages of eoctl in a browser. The fixture `page` gives a document as the browser has it."""

from collections.abc import Callable

from tests.kafka.test_exporter import exporting


def test_the_exporters_page_leads_to_the_metrics(page: Callable[[str], str]) -> None:
    with exporting("--bootstrap-server", "127.0.0.1:1") as exporter:
        front = exporter.url.removesuffix("/metrics")
        assert '<a href="/metrics">' in page(front)
        exporter.looked("failed")
        assert "eoctl_up" in page(exporter.url)
