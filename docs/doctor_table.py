"""The table in docs/doctor.md: a row for each rule of `eoctl doctor`, from the rules themselves."""

from eoctl.render.explain import means
from recovery.doctor.rules import RULES


def table() -> str:
    """Return the table in Markdown: what a rule finds, the rights it needs, Kafka's own source."""
    lines = ["| rule | finds | needs | source |", "|---|---|---|---|"]
    for rule in RULES:
        link = f"[{rule.name}](../eoctl/explain/doctor.md#{rule.name})"
        cells = [
            link,
            means(rule.name, "finding"),
            ", ".join(rule.needs) or "none",
            ", ".join(rule.sources),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
