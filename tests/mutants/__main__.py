"""`make mutants`: change one place of a rule at a time; do its unit tests notice?

A seeded sample of all single mutations (`tests.mutants.places`) of the modules in MODULES, each
run in a forked process against the unit tests named there, the quick ones first, stopped at the
first failure. Prints the share that was noticed ("killed") and what survived. survivors.txt
explains those that cannot be noticed. Ends with 1 when less than 95 % were killed, or one survived
that is not explained.

    make mutants                                     # the sample
    make mutants MUTANTS="--of recovery.diagnose.case --all"  # every mutation of one module
    make mutants MUTANTS="--brokers --count 40"               # modules that only brokers test
"""

import argparse
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.finding import ROOT, Mutated, source
from tests.mutants.places import Mutant, mutant, places

SURVIVORS = Path(__file__).with_name("survivors.txt")
WANTED = 0.95
WANTED_ON_BROKERS = 0.9
CPU_SECONDS = 90
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
)
MODULES: dict[str, Sequence[str]] = {
    "recovery.diagnose.verdicts": _VERDICTS,
    "recovery.diagnose.case": _VERDICTS,
    "recovery.inspect.history": ("history", "verdicts", "audit_transactions", "verdicts_model"),
    "recovery.inspect.lost_markers": ("history", "verdicts", "verdicts_model"),
    "recovery.diagnose.remedies": _VERDICTS,
    "recovery.remedy.repairs": (
        "verdicts",
        "case",
        "rules_exactly",
        "owned",
        "verdict_rows",
        "verdicts_model",
    ),
    "recovery.inspect.id_facts": _IDS,
    "recovery.diagnose.id_remedies": _IDS,
    "recovery.diagnose.id_verdicts": _IDS,
    "recovery.change.plan": ("plan", "journal"),
    "recovery.restart.decide": _RESTART,
    "recovery.restart.drop_first": ("drop_first", *_RESTART),
    "recovery.diagnose.reach": ("reach",),
    "recovery.diagnose.waiting": ("waiting_records", "bundle_files"),
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
}


BROKERS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("modules.toml").read_text(encoding="utf-8")
)
"""Modules whose mutants tests on brokers notice (`modules.toml`), apart from MODULES."""
BROKER_SECONDS = 240


def noticed_on_brokers(change: Mutant) -> bool:
    """Whether one of the module's tests on brokers fails with the change, or does not end.

    Each mutant has labs of its own: what it leaves in one must not fail the next one.
    """
    words = [sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-p", "no:xdist"]
    words += ["-x", "-q", "--force-reruns=0", *BROKERS[change.module]["broker"]]
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | {"EOCTL_MUTANT": f"{change.module} {change.number}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(BROKER_SECONDS) != 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # its labs are taken down
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        return True


def noticed(files: Sequence[str], change: Mutant | None) -> bool:
    """Whether a test fails (or hangs) with the change; None: with the modules as they are."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = _tested(files, change)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def _tested(files: Sequence[str], change: Mutant | None) -> int:
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if change is not None:
        sys.meta_path.insert(0, Mutated(change))
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    plugins = ("-p", "no:xdist", "-p", "no:cacheprovider", "--force-reruns=0")
    # the parent has loaded what pytest would rewrite
    loaded = "ignore::pytest.PytestAssertRewriteWarning"
    quiet = ("-x", "-q", "--hypothesis-seed=0", "--timeout=0", "-W", loaded)
    return int(pytest.main([*files, *quiet, *plugins]))


def _test_files(module: str) -> list[str]:
    named = MODULES[module] if module in MODULES else BROKERS[module]["unit"]
    names = [ROOT / "tests" / "unit" / f"test_{name}.py" for name in named]
    return [str(path) for path in names if path.exists()]


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
    parser.add_argument("--brokers", action="store_true", help="the modules of modules.toml")
    asked = parser.parse_args()

    chosen = asked.of or list(BROKERS if asked.brokers else MODULES)
    every = [
        (hashlib.sha256(f"{asked.seed} {m} {place}".encode()).digest(), m, number)
        for m in chosen
        for number, place in enumerate(places(source(m)))
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
        for file, failed in zip(every_file, pool.map(_fails, every_file), strict=True):
            if failed:
                print(f"fails without a mutation: {file}", file=sys.stderr)
                return 2
        results = list(pool.map(_noticed_and_told, sample))
    return _report(sample, results, time.monotonic() - begun)


def _fails(file: str) -> bool:
    return noticed([file], None)


def _noticed_and_told(change: Mutant) -> bool:
    files = _test_files(change.module)
    killed = bool(files) and noticed(files, change)
    if not killed and change.module in BROKERS:
        killed = noticed_on_brokers(change)
    if not killed:
        print(f"survived: {change.module}:{change.line}: {change.name}", flush=True)
    return killed


def _report(sample: Sequence[Mutant], killed: Sequence[bool], seconds: float) -> int:
    of, died = Counter(m.module for m in sample), Counter[str]()
    known, new = explained(), []
    for tried, gone in zip(sample, killed, strict=True):
        died[tried.module] += gone
        if not gone and tried.name not in known:
            new.append(tried)
    for module in of:
        print(f"{module:<36} {died[module]:>4} of {of[module]:>4}")
    share = sum(killed) / len(sample) if sample else 1.0
    print(
        f"killed {sum(killed)} of {len(sample)} ({share:.1%}) in {seconds:.0f} s; "
        f"survivors that {SURVIVORS.name} does not explain: {len(new)}"
    )
    wanted = WANTED_ON_BROKERS if any(m in BROKERS for m in of) else WANTED
    return 0 if share >= wanted and not new else 1


if __name__ == "__main__":
    sys.exit(main())
