"""How large a topology may become while it is built: Weft's own limits, or lower ones for some work.

A short spec can ask for millions of links. Whoever takes specs from others and wants only small topologies,
as the studio does, lowers the bounds around the work, so that a large one is refused before it is drawn.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft import limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class SizeBounds:
    """The largest topology that may be built.

    Parameters
    ----------
    ranks, switches, links
        The most of each.
    place
        Words for messages that say where these bounds hold, such as "in the studio".
    """

    ranks: int = limits.MAX_RANKS
    switches: int = limits.MAX_SWITCHES
    links: int = limits.MAX_LINKS
    place: str = ""

    def check(self, name: str, ranks: int, switches: int, links: int) -> None:
        """Raise a `LimitError` if one of these numbers is too large; `name` says of what, if it is known."""
        before, after = f"{name}: " if name else "", f" {self.place}" if self.place else ""
        limits.check(f"{before}ranks{after}", ranks, self.ranks)
        limits.check(f"{before}switches{after}", switches, self.switches)
        limits.check(f"{before}links{after}", links, self.links)


_WHOLE: Final = SizeBounds()
_CURRENT: Final[ContextVar[SizeBounds]] = ContextVar("weft size bounds", default=_WHOLE)


def size_bounds() -> SizeBounds:
    """The bounds that hold here."""
    return _CURRENT.get()


@contextmanager
def lowered_bounds(bounds: SizeBounds) -> Iterator[None]:
    """Have other bounds in this thread until the end of a ``with`` statement.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> with lowered_bounds(SizeBounds(ranks=4)):
    ...     load_topology("ring:8")
    Traceback (most recent call last):
    ...
    weft.errors.LimitError: ring:8: ranks: 8 is more than the 4 that Weft accepts
    """
    token = _CURRENT.set(bounds)
    try:
        yield
    finally:
        _CURRENT.reset(token)
