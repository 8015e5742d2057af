"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as JSON: fails if anything else was printed."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Outcome]
