"""A pytest plugin: the mutant that EOCTL_MUTANT names (`MODULE NUMBER`) in place of its module.

It is in place before a test file is imported, also in the processes that `tests.forked` forks.
Executors of Spark and other programs of their own run the module as it is.
"""

import os
import sys

from tests.mutants.finding import Mutated, source
from tests.mutants.places import mutant

_module, _number = os.environ["EOCTL_MUTANT"].split()
sys.meta_path.insert(0, Mutated(mutant(_module, source(_module), int(_number))))
