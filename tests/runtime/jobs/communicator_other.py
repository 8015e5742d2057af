"""A plan is what runs.

Run by tests/runtime/test_communicator.py.
"""

import sys

import weft

weft.init(plan=sys.argv[1], topology="ring:4@bw=1GB/s")
