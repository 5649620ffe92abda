"""The table in docs/permissions.md: the rights that each command needs, from the data."""

from collections import defaultdict

from recovery.inspect.rights import NEEDS


def table() -> str:
    """Return the table in Markdown, a row for each command that needs rights of its own."""
    lines = ["| command | needs |", "|---|---|"]
    for commands, needed in NEEDS.items():
        names, _, where = commands.partition(" under ")
        names = ", ".join(f"`{name}`" for name in names.split(", "))
        names += f" under {where}" if where else ""
        lines.append(f"| {names} | {_spoken(needed)} |")
    return "\n".join([*lines, ""])


def _spoken(needed: tuple[str, ...]) -> str:
    """DESCRIBE, READ on topics; ... : the operations on each kind of resource."""
    on: dict[str, list[str]] = defaultdict(list)
    for right in needed:
        resource, operation = right.split(": ")
        on[f"`{resource}`" if resource.startswith("__") else resource].append(operation)
    return "; ".join(f"{', '.join(does)} on {resource}" for resource, does in on.items())
