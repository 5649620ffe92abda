"""Judging a lab from a test, without the command line."""

from eoctl.config import Connect, resolve
from eoctl.lab.cluster import Lab
from eoctl.operations.diagnose import diagnose
from eoctl.operations.inspect import Scope
from eoctl.operations.session import with_cluster
from recovery.diagnosis import Diagnosis
from recovery.observation import Settings
from recovery.selectors import parse_selector


def judged(
    lab: Lab,
    *topics: str,
    settings: Settings | None = None,
    sample_interval: float = 0.3,
    timeout: float = 120.0,
    properties: dict[str, str] | None = None,
) -> Diagnosis:
    """A diagnosis of these topics (all without any)."""
    asked = Connect(
        bootstrap_server=lab.bootstrap_servers,
        properties=tuple(f"{k}={v}" for k, v in (properties or {}).items()),
    )
    scope = Scope(tuple(parse_selector(t) for t in topics))
    return with_cluster(
        resolve(asked),
        timeout,
        lambda c: diagnose(c, scope, settings or Settings(), sample_interval=sample_interval),
    )
