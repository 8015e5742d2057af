"""One studio for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.studio import Studio, start_studio


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    with start_studio("torus:4x4") as found:
        yield found
