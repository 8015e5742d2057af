"""The targets of tools/fuzz.py.

The tests' own generators of inputs are used too, so their folder is put on the path first.
"""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
