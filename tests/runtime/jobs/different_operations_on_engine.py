"""Messages, gathers, scatters and parts are told apart on other engines.

Run by tests/runtime/test_different_operations.py.
"""

from functools import partial

from different_operations import FROM_0, FROM_1, try_pairs
from support.engine_rank import begin, say

say(try_pairs((FROM_0, FROM_1), partial(begin, timeout=20)))
