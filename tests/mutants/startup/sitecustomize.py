"""Put the mutant that TESTS_MUTANT names (`MODULE NUMBER`) in place of its module.

Python imports this file at its start where PYTHONPATH names the folder, so that every process of a
test has the mutant: pytest, the commands that it starts, Spark's drivers and the Python workers of
its executors, which have the path and the variable from their parent.
"""

import os
import sys
from pathlib import Path

if "TESTS_MUTANT" in os.environ:
    _root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, _root)
    from tests.mutants.finding import Mutated, source
    from tests.mutants.sites import mutant

    sys.path.remove(_root)
    _module, _number = os.environ["TESTS_MUTANT"].split()
    sys.meta_path.insert(0, Mutated(mutant(_module, source(_module), int(_number))))
