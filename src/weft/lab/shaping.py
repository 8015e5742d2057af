"""Shaped cables: the token bucket at each end of a cable that keeps what is sent to the speed of its link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.lab.iproute import tc

if TYPE_CHECKING:
    from weft.lab.blueprint import Blueprint, Cable

_SMALLEST_BURST: Final = 8000
_BURSTS_PER_SECOND: Final = 1000


def shape_cables(blueprint: Blueprint, space: int, name: str) -> None:
    """Shape the ends in a space, whose namespace has this name, that something is sent from."""
    ends = blueprint.ends_in(space)
    tc([_bucket(cable, end.speed, "add") for cable, end in ends if end.speed is not None], name)


def reshape_cable(cable: Cable, bandwidth: int, name: str) -> None:
    """Change the speed of a cable's end in the namespace of this name, in bytes per second."""
    tc([_bucket(cable, bandwidth, "change")], name)


def _bucket(cable: Cable, bandwidth: int, verb: str) -> str:
    """The line of ``tc``."""
    burst = max(_SMALLEST_BURST, bandwidth // _BURSTS_PER_SECOND)
    return f"qdisc {verb} dev {cable.name} root tbf rate {bandwidth * 8}bit burst {burst} latency 100ms"
