"""Judging a lab from a test, without the command line."""

from eoctl.lab.cluster import Lab
from eoctl.operations.diagnose.judging import diagnose
from eoctl.operations.inspect.lists import Scope
from eoctl.operations.session.session import with_cluster
from eoctl.settings.context import Connect, resolve
from recovery.diagnose.diagnosis import Diagnosis, Judged, JudgedId
from recovery.diagnose.id_verdicts import judge_id
from recovery.diagnose.verdicts import judge
from recovery.inspect.observation import Settings
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
        lambda c: diagnose(c, scope, settings or Settings(), pause=sample_interval),
    )


def rule_of(j: Judged, settings: Settings | None = None, **other: object) -> str | None:
    """The rule by which this is judged with something else than was seen.

    For what no broker can be brought to show when a test wants it: a look that was not taken, or
    a moment between two answers. All else is what the real broker answered.
    """
    names = ("about", "start", "first", "second", "history")
    seen = {name: getattr(j, name) for name in names} | other
    verdict = judge(**seen, settings=settings or Settings())
    return verdict.rule if verdict else None


def rule_of_id(j: JudgedId, settings: Settings, **other: object) -> str:
    """The same of an id that holds no partition."""
    seen = {name: getattr(j, name) for name in ("first", "second", "record")} | other
    return judge_id(**seen, settings=settings).rule
