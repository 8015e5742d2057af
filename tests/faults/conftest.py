"""What the fault tests share: processes that start ranks quickly, and a network of hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.faults import Nursery
from support.hosts import Network, make_network


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture(scope="session")
def torch_nursery() -> Iterator[Nursery]:
    with Nursery(torch=True) as found:
        yield found


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    with make_network(2) as found:
        yield found
