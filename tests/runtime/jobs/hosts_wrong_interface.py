"""An interface of another host is refused.

Run by tests/runtime/test_hosts.py.
"""

import weft

try:
    weft.init(timeout=10)
except weft.InputError as error:
    print(error)
except weft.RuntimeFailure:
    print("the others do not come")
