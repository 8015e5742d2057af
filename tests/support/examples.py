"""How many random examples a property test tries: as many as it asks for, times the factor of the tier.

``make check`` tries a tenth, and ``make test-slow`` twice as many; they set ``WEFT_EXAMPLES`` so.
"""

from __future__ import annotations

import os
from typing import Any, Final

from hypothesis import settings

FACTOR: Final = float(os.environ.get("WEFT_EXAMPLES", "1"))
FEWEST: Final = 3
USUAL: Final = 100
"""What a property test tries that asks for no number of its own."""


def scale(count: int) -> int:
    """So many examples, times the factor."""
    return max(FEWEST, round(count * FACTOR))


def examples(count: int, **more: Any) -> settings:
    """Settings of a property test that is to try so many examples in ``make test``."""
    return settings(max_examples=scale(count), **more)
