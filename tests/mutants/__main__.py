"""`make mutants`: change one place of a rule at a time; do its tests notice?

A seeded sample of all single mutations (`tests.mutants.sites`) of the modules in MODULES, each
run in a forked process against the unit tests named there, the quick ones first, stopped at the
first failure. With --brokers the modules are those of modules.toml, and what their unit tests let
pass is run against the tests on real brokers named there.

Prints what no unit test killed and, with --brokers, what became of it there; then how many were
killed (a test failed), how many ran out of time and how many survived; a mutant that ran out of
time is not killed. survivors.txt explains those that cannot be killed.
Ends with 1 when less than 95% (with --brokers: 90%) were killed, or one that was not is not
explained; with 2 when a test fails without any mutation.

    make mutants                                     # the sample
    make mutants MUTANTS="--of recovery.diagnose.case --all"  # every mutation of one module
    make mutants MUTANTS="--brokers --count 40"               # unit tests, then tests on brokers
    make mutants MUTANTS="--of eoctl.kafka.write.markers"     # its unit tests alone
"""

import argparse
import hashlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from pathlib import Path

from tests.mutants.finding import ROOT, Mutated, source
from tests.mutants.sites import Mutant, mutant, sites

SURVIVORS = Path(__file__).with_name("survivors.txt")
WANTED = 0.95
WANTED_ON_BROKERS = 0.9
CPU_SECONDS = 90
NOTHING_COLLECTED = 5  # pytest's exit status
SHARE = "0.02"
"""Of the counts of generated tests: they run in full for each mutant that nothing else notices."""

_VERDICTS = (
    "verdicts",
    "case",
    "rules_exactly",
    "history",
    "owned",
    "prospect",
    "verdict_rows",
    "brokers_away",
    "commit_open",
    "remedy_plan",
    "render_why",
    "verdicts_model",
)
_IDS = ("id_verdicts", *_VERDICTS)
_RESTART = (
    "strategies",
    "restart",
    "strategies_producers",
    "restart_verify",
    "restart_kills",
    "rules_exactly",
    "restart_asked",
    "restart_operation",
    "source_offsets",
    "output_owners",
)
MODULES: dict[str, Sequence[str]] = {
    "recovery.diagnose.verdicts": _VERDICTS,
    "recovery.diagnose.case": _VERDICTS,
    "recovery.inspect.history": (
        "history",
        "case",
        "verdicts",
        "audit_transactions",
        "verdicts_model",
    ),
    "recovery.inspect.lost_markers": (
        "history",
        "case",
        "verdicts",
        "verdicts_model",
        "foreign_markers",
    ),
    "recovery.diagnose.remedies": _VERDICTS,
    "recovery.remedy.repairs": (
        "verdicts",
        "case",
        "rules_exactly",
        "owned",
        "verdict_rows",
        "brokers_away",
        "commit_open",
        "remedy_plan",
        "verdicts_model",
    ),
    "recovery.remedy.group_offsets": ("group_offsets",),
    "recovery.inspect.id_facts": _IDS,
    "recovery.diagnose.id_remedies": _IDS,
    "recovery.diagnose.id_verdicts": _IDS,
    "recovery.change.plan": ("plan", "journal"),
    "recovery.restart.decide": _RESTART,
    "recovery.restart.drop_first": ("drop_first", *_RESTART),
    "recovery.diagnose.reach": ("reach",),
    "recovery.diagnose.waiting_records": ("waiting_records", "bundle_files"),
    "recovery.restart.adhoc": _RESTART,
    "recovery.restart.commits": ("restart_commits",),
    "recovery.restart.decision": _RESTART,
    "recovery.restart.input_rules": _RESTART,
    "recovery.restart.merged": _RESTART,
    "recovery.restart.observed": _RESTART,
    "recovery.restart.output_end": _RESTART,
    "recovery.restart.output_rules": _RESTART,
    "recovery.restart.positions": _RESTART,
    "recovery.restart.producers": _RESTART,
    "recovery.restart.transactional": _RESTART,
    "recovery.watch.group_rule": ("group_rule",),
    "recovery.watch.growth_rules": ("growth_rules",),
    "recovery.inspect.growth.internal_topics": ("growth_rules",),
    "recovery.inspect.growth.prefixes": ("growth",),
    "recovery.inspect.growth.summaries": ("growth",),
    **{
        f"recovery.doctor.{name}": ("doctor_rules", "as_checks")
        for name in (
            "findings",
            "durability_rules",
            "id_rules",
            "expiry_rules",
            "changelog_rules",
            "narrowing",
            "as_checks",
        )
    },
    "recovery.doctor.versions": ("versions", "version_rules", "known_bugs"),
    "recovery.doctor.known_bugs": ("known_bugs", "version_rules"),
    "recovery.doctor.version_rules": ("version_rules",),
    "recovery.doctor.commit_rules": ("mixed_commits",),
    "recovery.doctor.commit_ways": ("mixed_commits",),
}


BROKERS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("modules.toml").read_text(encoding="utf-8")
)
"""Modules whose mutants tests on brokers are to notice too (`modules.toml`), apart from MODULES."""
STARTUP = Path(__file__).with_name("startup")
SECONDS = 600
"""The time limit of one run of a module's tests on brokers."""


class Result(StrEnum):
    """What became of a mutant. UNJUDGED: a test that failed with it fails without it, too."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNJUDGED = "not judged"


class CleanRuns:
    """Runs of tests on brokers without a mutation, one of each test that failed with one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed: dict[tuple[str, ...], bool] = {}

    def passes(self, tests: tuple[str, ...]) -> bool:
        """Return True if the tests pass without a mutation."""
        with self._lock:
            if tests not in self._passed:
                result, _ = _run_on_brokers(tests, None)
                self._passed[tests] = result is Result.SURVIVED
                if not self._passed[tests]:
                    print(f"fails without a mutation: {' '.join(tests)}", file=sys.stderr)
            return self._passed[tests]


def tried_on_brokers(change: Mutant, clean: CleanRuns) -> tuple[Result, tuple[str, ...]]:
    """Run the module's tests on brokers until one fails. Return the test that failed, too.

    A failure counts only if the same test passes without the mutation.
    """
    result, failed = _run_on_brokers(tuple(BROKERS[change.module]["broker"]), change)
    if result is Result.KILLED and not clean.passes(failed):
        return Result.UNJUDGED, failed
    return result, failed if result is Result.KILLED else ()


def _run_on_brokers(
    tests: tuple[str, ...], change: Mutant | None
) -> tuple[Result, tuple[str, ...]]:
    """Run tests in one process, with labs of their own, until one fails. Return which failed.

    A failed test gets its second try as ever, so that a missed deadline kills no mutant. A test
    that hangs is no failed test: only the whole run has a time limit.
    """
    options = ("-p", "no:xdist", "-x", "-q", "--timeout=0", "-rfE")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=os.environ | _in_every_process(change),
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            result = _result(process.wait(SECONDS))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # its labs are taken down
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return Result.TIMED_OUT, ()
        printed.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", printed.read(), re.M)
    return result, tuple(failed) if result is Result.KILLED and failed else tests


def _in_every_process(change: Mutant | None) -> dict[str, str]:
    """Return the environment with which each Python process has the mutant (`startup`)."""
    if change is None:
        return {}
    paths = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "TESTS_MUTANT": f"{change.module} {change.number}",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _result(status: int) -> Result:
    """Return what pytest's exit status, or the signal that ended it, says of a mutant."""
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return Result.TIMED_OUT
    # nothing collected: nothing that could have noticed
    return Result.SURVIVED if status in (0, NOTHING_COLLECTED) else Result.KILLED


def tried(files: Sequence[str], change: Mutant | None) -> Result:
    """Run unit tests with the change; None: with the modules as they are."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = _tested(files, change)
        finally:
            os._exit(status)
    return _result(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _tested(files: Sequence[str], change: Mutant | None) -> int:
    import pytest

    if change is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if change is not None:
        sys.meta_path.insert(0, Mutated(change))
        os.environ |= _in_every_process(change)  # of the processes that the tests start
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    plugins = ("-p", "no:xdist", "-p", "no:cacheprovider", "--force-reruns=0")
    # the parent has loaded what pytest would rewrite
    loaded = "ignore::pytest.PytestAssertRewriteWarning"
    quiet = ("-x", "-q", "--hypothesis-seed=0", "--timeout=0", "-W", loaded)
    return int(pytest.main([*files, *quiet, *plugins]))


def _test_files(module: str) -> list[str]:
    named = MODULES[module] if module in MODULES else BROKERS[module]["unit"]
    return [str(next((ROOT / "tests" / "unit").glob(f"*/test_{name}.py"))) for name in named]


def explained() -> dict[str, str]:
    """Survivors that cannot be noticed: name and reason, as survivors.txt has them in turn."""
    lines = SURVIVORS.read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("    "):
            found.update(dict.fromkeys(names, line.strip()))
            names = []
        else:
            names.append(line)
    return found


def main() -> int:
    """Run the sample, print what came of it."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--of", action="append", choices=[*MODULES, *BROKERS], help="only these modules"
    )
    parser.add_argument("--count", type=int, default=150, help="how many in all [150]")
    parser.add_argument("--all", action="store_true", help="every one")
    parser.add_argument("--seed", type=int, default=13, help="of the choice [13]")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--brokers", action="store_true", help="those of modules.toml, by tests on brokers too"
    )
    asked = parser.parse_args()

    chosen = asked.of or list(BROKERS if asked.brokers else MODULES)
    every = [
        (hashlib.sha256(f"{asked.seed} {m} {site}".encode()).digest(), m, number)
        for m in chosen
        for number, site in enumerate(sites(source(m)))
    ]
    # each place draws its own lot: what changes elsewhere leaves the others in the sample
    picked = every if asked.all else sorted(every)[: asked.count]
    order = [*MODULES, *BROKERS]
    picked.sort(key=lambda p: (order.index(p[1]), p[2]))
    sample = [mutant(m, source(m), number) for _, m, number in picked]
    print(f"{len(sample)} of {len(every)} mutations of {len(chosen)} modules, seed {asked.seed}")

    os.environ["EOCTL_TEST_SHARE"] = SHARE
    import hypothesis  # noqa: F401  (loaded once: the processes are forked from this one)
    import pydantic  # noqa: F401
    import pytest  # noqa: F401

    begun = time.monotonic()
    with ThreadPoolExecutor(asked.processes) as pool:
        every_file = sorted({file for m in sample for file in _test_files(m.module)})
        if tried(every_file, None) is not Result.SURVIVED:  # once for all: it is dear
            for file in filter(_fails, every_file):
                print(f"fails without a mutation: {file}", file=sys.stderr)
            return 2
        results = list(pool.map(_by_unit_tests, sample))
        if asked.brokers:
            judge = partial(_by_brokers, clean=CleanRuns())
            results = list(pool.map(judge, sample, results))
    return _report(sample, results, time.monotonic() - begun)


def _fails(file: str) -> bool:
    return tried([file], None) is not Result.SURVIVED


def _by_unit_tests(change: Mutant) -> Result:
    """Judge a mutant by its unit tests. Without any it survives."""
    files = _test_files(change.module)
    result = tried(files, change) if files else Result.SURVIVED
    if result is not Result.KILLED:
        print(f"unit tests: {result}: {_named(change)}", flush=True)
    return result


def _by_brokers(change: Mutant, result: Result, clean: CleanRuns) -> Result:
    """Judge what survived the unit tests by the module's tests on brokers."""
    if result is not Result.SURVIVED or change.module not in BROKERS:
        return result
    begun = time.monotonic()
    result, failed = tried_on_brokers(change, clean)
    seconds = f"{time.monotonic() - begun:.0f} s"
    print(f"brokers: {result} ({seconds}): {_named(change)} {' '.join(failed)}", flush=True)
    return result


def _named(change: Mutant) -> str:
    return f"{change.module}:{change.line}: {change.name}"


def _report(sample: Sequence[Mutant], results: Sequence[Result], seconds: float) -> int:
    by_module: dict[str, Counter[Result]] = defaultdict(Counter)
    known, new = explained(), []
    for change, result in zip(sample, results, strict=True):
        by_module[change.module][result] += 1
        if result is not Result.KILLED and change.name not in known:
            new.append(change)
    print(f"{'':<36} {'killed':>9} {'timed out':>9} {'survived':>9}")
    for module, counts in by_module.items():
        killed = f"{counts[Result.KILLED]} of {counts.total()}"
        others = f"{counts[Result.TIMED_OUT]:>9} {counts[Result.SURVIVED]:>9}"
        print(f"{module:<36} {killed:>9} {others}")
    totals = Counter(results)
    share = totals[Result.KILLED] / len(sample) if sample else 1.0
    print(
        f"killed {totals[Result.KILLED]} of {len(sample)} ({share:.1%}), "
        f"{totals[Result.TIMED_OUT]} timed out, in {seconds:.0f} s; "
        f"not killed and not explained in {SURVIVORS.name}: {len(new)}"
    )
    if totals[Result.UNJUDGED]:
        return 2
    wanted = WANTED_ON_BROKERS if any(m in BROKERS for m in by_module) else WANTED
    return 0 if share >= wanted and not new else 1


if __name__ == "__main__":
    sys.exit(main())
