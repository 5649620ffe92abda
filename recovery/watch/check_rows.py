"""The rows of `check` and of `bundle open`."""

from typing import Literal

from recovery.row import Row
from recovery.values import Reason, Value

Unit = Literal[
    "offsets",
    "seconds",
    "transactions",
    "groups",
    "partitions",
    "epochs",
    "producers",
    "ids",
    "bytes",
    "findings",
]

FALLING = frozenset({"producer_id_expiry", "deadline", "id_expiry", "epochs_left", "group_expiry"})
"""Rules that observe what is left of something."""


class Judgement(Value):
    """What a rule of [check] says: a CheckRow with reasons in place of its sentence."""

    rule: str
    threshold: int | float
    observed: int | float | None
    unit: Unit
    ok: bool | None
    reasons: tuple[Reason, ...]


class CheckRow(Row):
    """One rule of [check]. ok null: not known, and `errors` or `notes` say why.

    rule: its name in the config file. The rule speaks when observed reaches threshold; a rule of
    FALLING (what is left) when it falls to it. observed null: there is nothing to observe, or it
    is not known.
    """

    rule: str
    threshold: int | float
    observed: int | float | None
    unit: Unit
    ok: bool | None
    detail: str


class BundlePartRow(Row):
    """One kind of thing that a bundle holds. not_seen: how many of it could not be seen."""

    part: str
    count: int
    not_seen: int
    detail: str
