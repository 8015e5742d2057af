"""What two ranks of a communicator do with each other, without the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import InputError
from weft.runtime.engines import Dealing
from weft.runtime.operations import Operations, is_rank

if TYPE_CHECKING:
    from weft.runtime.work import Work


class Exchanges(Operations):
    """The part of `Communicator` that sends to and receives from single ranks; parameters as there."""

    def send(
        self,
        array: Any,
        dest: int,
        *,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Work | None:
        """Send an array to one other rank, and return when that rank has received it.

        Two ranks that both send first would wait for each other: `send_recv` does both at once.
        """
        self._check_peer(dest)
        flat = self._engine.flatten(array, writable=False)
        dealing = Dealing(dest, flat.elements, None)

        def run() -> None:
            self._exchange("send", [dealing], flat, flat, timeout, kind)

        found: Work | None = self._do(run, async_op=async_op)
        return found

    def recv(
        self,
        array: Any,
        source: int,
        *,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Any:
        """Receive into an array what one other rank sends; it has the same size and type."""
        self._check_peer(source)
        flat = self._engine.flatten(array, writable=True)
        dealing = Dealing(source, None, flat.elements)

        def run() -> Any:
            self._exchange("recv", [dealing], flat, flat, timeout, kind)
            return flat.give_back()

        return self._do(run, async_op=async_op)

    def send_recv(
        self,
        array: Any,
        dest: int,
        into: Any,
        source: int,
        *,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Any:
        """Send an array to one rank and receive another from the same rank or another, at once.

        Parameters
        ----------
        array
            For `dest`; may not overlap with `into`.
        into
            For what `source` sends; the same type.
        """
        self._check_peer(dest)
        self._check_peer(source)
        flat = self._engine.flatten(array, writable=False)
        out = self._engine.flatten(into, writable=True)
        if flat.dtype != out.dtype:
            msg = f"send_recv: both arrays have one type; these are {flat.dtype} and {out.dtype}"
            raise TypeError(msg)
        if flat.overlaps(out):
            msg = "send_recv: the arrays overlap; what comes would overwrite what goes"
            raise InputError(msg)
        if dest == source:
            dealings = [Dealing(dest, flat.elements, out.elements)]
        else:
            dealings = [Dealing(dest, flat.elements, None), Dealing(source, None, out.elements)]

        def run() -> Any:
            self._exchange("send_recv", dealings, flat, out, timeout, kind)
            return out.give_back()

        return self._do(run, async_op=async_op)

    def _check_peer(self, peer: int) -> None:
        if not is_rank(peer, self.size) or peer == self.rank:
            what = "is this rank itself" if peer == self.rank else f"is none of 0..{self.size - 1}"
            msg = f"rank {self.rank} has no peer {peer!r}: that {what}"
            raise InputError(msg)
