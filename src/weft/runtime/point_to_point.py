"""Point-to-point operations of a communicator: send, receive, and the gather and scatter made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from weft.errors import InputError
from weft.runtime.engines import PeerExchange
from weft.runtime.operation_queue import OperationQueue, is_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.buffers import Buffer
    from weft.runtime.handles import AnyOptions, Handle, StartingOptions, WaitingOptions

_Array = TypeVar("_Array")


class PointToPoint(OperationQueue):
    """The part of `Communicator` that sends to and receives from single ranks; parameters as there."""

    @overload
    def send(self, array: Any, dest: int, **how: Unpack[WaitingOptions]) -> None: ...
    @overload
    def send(self, array: Any, dest: int, **how: Unpack[StartingOptions]) -> Handle[None]: ...
    def send(self, array: Any, dest: int, **how: Unpack[AnyOptions]) -> Any:
        """Send an array to one other rank, and return when that rank has received it.

        Two ranks that both send first would wait for each other: `send_recv` does both at once.
        """
        self._check_peer(dest)
        flat = self._engine.flatten(array, writable=False)
        exchanges = (PeerExchange(dest, flat.elements, None),)
        return self._do_exchange("send", exchanges, flat, None, how)

    @overload
    def recv(self, array: _Array, source: int, **how: Unpack[WaitingOptions]) -> _Array: ...
    @overload
    def recv(self, array: _Array, source: int, **how: Unpack[StartingOptions]) -> Handle[_Array]: ...
    def recv(self, array: Any, source: int, **how: Unpack[AnyOptions]) -> Any:
        """Receive into an array what one other rank sends; it has the same size and type."""
        self._check_peer(source)
        flat = self._engine.flatten(array, writable=True)
        exchanges = (PeerExchange(source, None, flat.elements),)
        return self._do_exchange("recv", exchanges, flat, flat, how)

    @overload
    def send_recv(
        self, array: Any, dest: int, into: _Array, source: int, **how: Unpack[WaitingOptions]
    ) -> _Array: ...
    @overload
    def send_recv(
        self, array: Any, dest: int, into: _Array, source: int, **how: Unpack[StartingOptions]
    ) -> Handle[_Array]: ...
    def send_recv(self, array: Any, dest: int, into: Any, source: int, **how: Unpack[AnyOptions]) -> Any:
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
            raise TypeError(f"send_recv: both arrays have one type; these are {flat.dtype} and {out.dtype}")
        if flat.overlaps(out):
            msg = "send_recv: the arrays overlap; received elements would overwrite those to be sent"
            raise InputError(msg)
        exchanges = (
            (PeerExchange(dest, flat.elements, out.elements),)
            if dest == source
            else (PeerExchange(dest, flat.elements, None), PeerExchange(source, None, out.elements))
        )
        return self._do_exchange("send_recv", exchanges, flat, out, how)

    def send_parts(self, peers: Sequence[int], array: Any, **how: Unpack[AnyOptions]) -> Any:
        """Send each of several ranks its part of an array, in their order; each calls `recv_parts`."""
        flat = self._engine.flatten(array, writable=False)
        part = self._part_of("send_parts", peers, flat.elements)
        exchanges = tuple(PeerExchange(peer, part, None, place * part) for place, peer in enumerate(peers))
        return self._do_exchange("send_parts", exchanges, flat, None, how)

    def recv_parts(
        self, peers: Sequence[int], array: Any, *, place: int = 0, **how: Unpack[AnyOptions]
    ) -> Any:
        """Receive from each of several ranks a part of an array, in their order.

        Parameters
        ----------
        place
            Number of this rank among those that the peer sends to.

        Raises
        ------
        InputError
            If there is no such place, or the array cannot be dealt out to the peers.
        DesyncError
            If a peer sends this rank another part.
        """
        flat = self._engine.flatten(array, writable=True)
        part = self._part_of("recv_parts", peers, flat.elements)
        others = self.size - 1
        if not is_rank(place, others):
            msg = f"place {place!r} is none of 0..{others - 1}: a peer sends to {others} ranks at most"
            raise InputError(f"recv_parts: {msg}")
        exchanges = tuple(
            PeerExchange(peer, None, part, number * part, int(place) * part)
            for number, peer in enumerate(peers)
        )
        return self._do_exchange("recv_parts", exchanges, flat, flat, how)

    def _do_exchange(
        self,
        name: str,
        exchanges: tuple[PeerExchange, ...],
        flat: Buffer,
        into: Buffer | None,
        how: AnyOptions,
    ) -> Any:
        """Run or queue exchanges; `into` is for what is received, and its array the result."""

        def run() -> Any:
            self._exchange(name, exchanges, flat, flat if into is None else into, how)
            return None if into is None else into.give_back()

        return self._do(name, run, flat, how=how)

    def _part_of(self, name: str, peers: Sequence[int], elements: int) -> int:
        for peer in peers:
            self._check_peer(peer)
        if len({*peers}) != len(peers) or not peers or elements % len(peers):
            raise InputError(f"{name}: {elements} elements cannot be dealt out to ranks {list(peers)}")
        return elements // len(peers)

    def gather(self, array: Any, root: int = 0, *, out: Any = None, **how: Unpack[AnyOptions]) -> Any:
        """Join the arrays of all ranks, which have the same size, in rank order at the root; returned flat.

        Parameters
        ----------
        array
            This rank's part.
        root
            The rank that gets the result; the others get None.
        out
            At the root, for the result, which then has its shape; `array` may be the root's place in it.
        """
        self._check_root(root)
        flat = self._engine.flatten(array, writable=False)
        part = flat.elements
        if self.rank != root:
            _check_no_array("gather", "out", out)
            own = (PeerExchange(root, part, None, 0, self.rank * part),)
            return self._do_exchange("gather", own, flat, None, how)
        whole = self._room("gather", out, flat, part * self.size)
        exchanges = tuple(
            PeerExchange(rank, None, part, rank * part) for rank in range(self.size) if rank != root
        )

        def run() -> Any:
            whole.part(root * part, (root + 1) * part).fill(flat)
            if exchanges:
                self._exchange("gather", exchanges, whole, whole, how)
            return whole.give_back()

        return self._do("gather", run, flat, how=how)

    def scatter(self, array: Any, root: int = 0, *, out: Any, **how: Unpack[AnyOptions]) -> Any:
        """Give rank r the r-th of equal parts of the root's array.

        Parameters
        ----------
        array
            The root's; None at the other ranks.
        root
            The rank that has it.
        out
            For this rank's part; at the root it may be the root's own part of `array`.
        """
        self._check_root(root)
        into = self._engine.flatten(out, writable=True)
        part = into.elements
        if self.rank != root:
            _check_no_array("scatter", "array", array)
            own = (PeerExchange(root, None, part, 0, self.rank * part),)
            return self._do_exchange("scatter", own, into, into, how)
        flat = self._engine.flatten(array, writable=False)
        if flat.elements != part * self.size or flat.dtype != into.dtype:
            have = f"{flat.elements} elements of {flat.dtype} for {self.size} ranks"
            raise InputError(f"scatter: {have}, but out has {part} of {into.dtype}")
        exchanges = tuple(
            PeerExchange(rank, part, None, rank * part) for rank in range(self.size) if rank != root
        )

        def run() -> Any:
            if exchanges:
                self._exchange("scatter", exchanges, flat, flat, how)
            # Last: it may lie where another rank's part was.
            into.fill(flat.part(root * part, (root + 1) * part))
            return into.give_back()

        return self._do("scatter", run, flat, how=how)

    def _check_peer(self, peer: int) -> None:
        if not is_rank(peer, self.size) or peer == self.rank:
            what = "is this rank itself" if peer == self.rank else f"is none of 0..{self.size - 1}"
            raise InputError(f"rank {self.rank} has no peer {peer!r}: that {what}")


def _check_no_array(name: str, what: str, given: Any) -> None:
    if given is not None:
        raise InputError(f"{name}: {what} was given at a rank that is not the root; give None")
