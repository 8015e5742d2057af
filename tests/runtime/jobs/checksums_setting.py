"""Ranks that do not agree on checksums are refused.

Run by tests/runtime/test_checksums.py.
"""

import os

import weft

os.environ["WEFT_CHECKSUMS"] = os.environ["WEFT_RANK"]
try:
    weft.init(transport="tcp", timeout=20)
except weft.InputError as error:
    print(error)
