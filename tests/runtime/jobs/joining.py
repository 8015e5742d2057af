"""A rank that joins its job, and does what a test wants of its control plane.

Usage: joining.py TIMEOUT STATEMENTS. The statements see ``plane`` and a few names besides. Prints a JSON
object a line: who has joined, and then that all is done, or the error.
"""

from __future__ import annotations

import json
import sys
import time

from weft.errors import WeftError
from weft.runtime import find_place, join

try:
    with join(find_place(), timeout=float(sys.argv[1])) as plane:
        print(json.dumps({"joined": [[member.rank, member.pid] for member in plane.members]}), flush=True)
        names = {"plane": plane, "time": time, "find_place": find_place, "join": join, "WeftError": WeftError}
        exec(sys.argv[2], names)
        print(json.dumps({"done": True}), flush=True)
except WeftError as error:
    shown = {key: value for key, value in vars(error).items() if not isinstance(value, bytes)}
    print(json.dumps({"error": type(error).__name__, "text": str(error), **shown}), flush=True)
