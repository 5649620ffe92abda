"""Freeze and hash what a change relies on and what it will do, before anything is sent.

A plan has two hashes. `sha256` covers what is approved: the cluster, the facts and the steps. The
same command on an unchanged cluster produces the same `sha256`, so `--plan-sha256` and the word
typed at the prompt mean the same change. The file's `seal` covers everything, including times.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from recovery.documents import Document, unique_keys
from recovery.errors import RefusedError, UsageError
from recovery.quoting import quoted, value_words
from recovery.times import rfc3339

SCHEMA = "eoctl.plan/v1"
VALID_MS = 10 * 60 * 1000
TRIES = 3
"""Words that may be typed at one question."""
WORD_CELLS = 24
"""Of a name, typed whole; of a longer one both ends and four digits are typed."""
_SEAL = "seal"
_ADDED = re.compile(
    r"((?:commit-|abort-)?(?:without-proof-|owner-is-gone-|link-is-stopped-)?)(.*?)"
    r"((?:-owner-is-gone)?(?:-which-writes)?)",
    re.DOTALL,
)
"""What a plan adds to the name of its target: an outcome, what was said of its owner."""


def plain(value: object) -> Any:
    """Return `value` as JSON would: lists, sorted dicts, text, integers, booleans, null.

    Raises ValueError for anything else, including floats, which not all programs print alike.
    """
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("the keys of a plan's facts are text")
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ValueError(f"a plan cannot hold a {type(value).__name__}")


Plain = Annotated[Any, BeforeValidator(plain)]


class Step(Document):
    """One change. Steps run in order, and each is journaled before and after.

    action, target, parameters: what is sent, where, with which values. does: the same in words.
    stands_on: the keys of the plan's `observed` that must still hold right before the step.
    about: the judgement behind a remedy, one entry per partition, or one with partition None for an
    id that holds none: transactional_id, partition, verdict, rule, evidence, dropped, freed, and
    how far the transaction reaches (recovery.diagnose.reach; older plans lack this). harms: who is
    harmed by the step, one sentence each. The approved hash covers neither about nor harms, since
    the ages in them differ from run to run.
    """

    action: str
    target: str
    parameters: Annotated[dict[str, Any], BeforeValidator(plain)] = {}
    does: str
    stands_on: tuple[str, ...]
    about: Annotated[list[dict[str, Any]], BeforeValidator(plain)] = []
    harms: tuple[str, ...] = ()


class Plan(Document):
    """A planned change, and the facts that make it right. Times are epoch milliseconds.

    kind: the operation that carries it out (txn-abort, restart, ...). action: the verb that the
    operator confirms. context, argv: the cluster's name and connection options; cluster_id: the
    cluster itself. scope: what the lock covers, e.g. `orders:3`; one change at a time per scope.
    observed: facts by subject (`orders:3`, `group payments`): topic ids, offsets, epochs, leader
    epochs, but nothing that may safely change meanwhile. independent: a refused step stops only
    itself. all_or_none: of an independent plan, no step begins unless all are allowed to.
    details: what `show` prints. hits: the target that the typed word names; None = the word has
    four digits of the hash instead.
    """

    kind: str
    action: str
    created_at: int
    expires_at: int
    context: str
    argv: tuple[str, ...]
    cluster_id: str
    scope: str
    summary: str
    lock: str
    observed: Annotated[dict[str, Any], BeforeValidator(plain)]
    steps: tuple[Step, ...]
    independent: bool = False
    all_or_none: bool = False
    details: Plain = None
    hits: str | None = None

    @model_validator(mode="after")
    def _facts_are_there(self) -> Self:
        for step in self.steps:
            if missing := set(step.stands_on) - self.observed.keys():
                raise ValueError(
                    f"the step of {step.target} depends on {missing}, which was not observed"
                )
        return self

    @property
    def sha256(self) -> str:
        """Return the hex hash of what is approved: kind, cluster, scope, facts, steps, no words."""
        return _hash(self._change() | {"observed": self.observed})

    def _change(self) -> dict[str, object]:
        """Return what the plan does, without its facts and words."""
        words = {"does", "about", "harms"}
        steps = [step.model_dump(mode="json", exclude=words) for step in self.steps]
        fields = {"kind", "cluster_id", "scope", "independent"}
        return self.model_dump(mode="json", include=fields) | {"steps": steps}

    @property
    def word(self) -> str:
        """Return the word to type: action and target (see `typeable`), or 4 digits of sha256."""
        hit = self.sha256[:4] if self.hits is None else typeable(self.hits)
        return f"{self.action}-{hit}"

    @property
    def question(self) -> str:
        """Return the confirmation prompt, without its answer."""
        return (
            f"{self.action.upper()} on {self.context} (cluster {self.cluster_id}): {self.summary}. "
            f"Type {self.word}:"
        )

    def asked_again(self, left: int) -> str:
        """Return the question after a wrong word. left: how many more may be typed."""
        more = "1 more try" if left == 1 else f"{left} more tries"
        return f"Not confirmed, nothing was sent. Type {self.word} ({more}, empty to leave it):"

    def same_change(self, other: "Plan") -> bool:
        """Return True if both plans do the same, whatever facts each relies on."""
        return self._change() == other._change()

    def check_expiry(self, now: int) -> None:
        """Raise RefusedError if `now` (epoch ms) has reached expires_at."""
        if now >= self.expires_at:
            raise RefusedError(
                f"the plan expired at {rfc3339(self.expires_at)}", remedy="plan again"
            )

    def changed(self, now: Mapping[str, object], steps: Iterable[Step]) -> list[str]:
        """Return a sentence for each fact that these steps rely on and that no longer holds."""
        keys = sorted({key for step in steps for key in step.stands_on})
        return differences(
            {key: self.observed[key] for key in keys},
            {key: now[key] for key in keys if key in now},
        )

    def refuse_changed(self, now: Mapping[str, object], steps: Iterable[Step]) -> None:
        """Raise RefusedError if a fact that these steps rely on no longer holds."""
        changes = self.changed(now, steps)
        if changes:
            more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
            raise RefusedError(
                f"changed since the plan: {'; '.join(changes[:3])}{more}",
                where=self.scope,
                remedy="plan again",
            )


def typeable(name: str) -> str:
    """Return what names a target and is short enough to type: parts of it if necessary.

    What a plan adds to a name (an outcome, `owner-is-gone`) stays whole. A name that is cut, or
    that has characters which no keyboard has, ends with 4 digits of a hash of all of it.

    >>> typeable("orders:2")
    'orders:2'
    >>> typeable("a b")
    'a_b-c868'
    >>> typeable("commit-without-proof-payments-enriched-by-region:11")
    'commit-without-proof-payments..egion:11-6e8c'
    """
    found = _ADDED.fullmatch(name)
    assert found is not None
    before, core, after = found.groups()
    if re.fullmatch(rf"[!-~]{{1,{WORD_CELLS}}}", core):
        return name
    shown = re.sub("[^!-~]", "_", core)
    if len(shown) > WORD_CELLS:
        shown = f"{shown[:8]}..{shown[-8:]}"
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:4]
    return f"{before}{shown}-{digits}{after}"


def differences(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """List how the facts differ: `orders:3 start_offset: was 7 when planned, is 9 now`."""
    return list(_differences((), plain(then), plain(now)))


def _differences(path: tuple[str, ...], then: Any, now: Any) -> Iterable[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            below = (*path, key)
            if key not in now:
                yield f"{' '.join(below)}: was {_short(then[key])} when planned, is gone now"
            elif key not in then:
                yield f"{' '.join(below)}: was not there when planned, is {_short(now[key])} now"
            else:
                yield from _differences(below, then[key], now[key])
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (before, after) in enumerate(zip(then, now, strict=True)):
            yield from _differences((*path, f"[{number}]"), before, after)
    # unlike in JSON, 1 == True in Python
    elif type(then) is not type(now) or then != now:
        yield f"{' '.join(path)}: was {_short(then)} when planned, is {_short(now)} now"


def _short(value: object) -> str:
    text = value_words(value)
    return text if len(text) <= 120 else text[:119] + "…"


def dump(plan: Plan) -> str:
    """Return the plan file's text: ASCII, one sorted key per line, equal for equal plans."""
    content = {"schema": SCHEMA, "sha256": plan.sha256, "plan": plan.model_dump(mode="json")}
    return json.dumps(content | {_SEAL: _hash(content)}, indent=1, sort_keys=True) + "\n"


def load(text: str, where: str) -> Plan:
    """Return the plan in a plan file's text. where: the file's name, for errors.

    Raises UsageError if the text is no plan of this version, RefusedError if a hash shows that the
    plan was changed after it was made.
    """
    try:
        content = json.loads(
            text, object_pairs_hook=unique_keys, parse_float=_no_float, parse_constant=_no_float
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a plan file: {error}", where=where) from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        version = "no schema" if schema is None else f"schema {quoted(str(schema))}"
        raise UsageError(
            f"not a plan file of this version: it has {version}, not {SCHEMA}", where=where
        )
    seal = content.pop(_SEAL, None)
    if seal != _hash(content):
        raise _changed(where, _SEAL, seal, _hash(content))
    try:
        plan = Plan.model_validate(content["plan"])
    except (ValidationError, KeyError) as error:
        why = "it has no plan"
        if isinstance(error, ValidationError):
            first = error.errors(include_input=False, include_url=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(f"not a plan file of this version: {why}", where=where) from None
    if content.get("sha256") != plan.sha256:
        raise _changed(where, "sha256", content.get("sha256"), plan.sha256)
    return plan


def _changed(where: str, name: str, stated: object, computed: str) -> RefusedError:
    return RefusedError(
        f"the plan was changed after it was made: its {name} says {quoted(str(stated)[:16])}…, "
        f"its content has {computed[:16]}…",
        where=where,
        remedy="plan again",
    )


def _no_float(text: str) -> float:
    raise ValueError(f"{quoted(text)} is not an integer")


def _hash(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
