"""Point-to-point operations of a communicator: send, receive, and the gather and scatter made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from weft.errors import InputError
from weft.runtime.engines import PeerExchange
from weft.runtime.operation_queue import OperationQueue, is_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.handles import Handle, OperationOptions, Starts, Waits

_Array = TypeVar("_Array")


class PointToPoint(OperationQueue):
    """The part of `Communicator` that sends to and receives from single ranks; parameters as there."""

    @overload
    def send(
        self, array: Any, dest: int, *, async_op: Waits = ..., **how: Unpack[OperationOptions]
    ) -> None: ...
    @overload
    def send(
        self, array: Any, dest: int, *, async_op: Starts, **how: Unpack[OperationOptions]
    ) -> Handle[None]: ...
    def send(
        self, array: Any, dest: int, *, timeout: float | None = None, async_op: bool = False, kind: str = ""
    ) -> Any:
        """Send an array to one other rank, and return when that rank has received it.

        Two ranks that both send first would wait for each other: `send_recv` does both at once.
        """
        self._check_peer(dest)
        flat = self._engine.flatten(array, writable=False)
        exchanges = (PeerExchange(dest, flat.elements, None),)

        def run() -> None:
            self._exchange("send", exchanges, flat, flat, timeout, kind)

        return self._do(run, async_op=async_op)

    @overload
    def recv(
        self, array: _Array, source: int, *, async_op: Waits = ..., **how: Unpack[OperationOptions]
    ) -> _Array: ...
    @overload
    def recv(
        self, array: _Array, source: int, *, async_op: Starts, **how: Unpack[OperationOptions]
    ) -> Handle[_Array]: ...
    def recv(
        self, array: Any, source: int, *, timeout: float | None = None, async_op: bool = False, kind: str = ""
    ) -> Any:
        """Receive into an array what one other rank sends; it has the same size and type."""
        self._check_peer(source)
        flat = self._engine.flatten(array, writable=True)
        exchanges = (PeerExchange(source, None, flat.elements),)

        def run() -> Any:
            self._exchange("recv", exchanges, flat, flat, timeout, kind)
            return flat.give_back()

        return self._do(run, async_op=async_op)

    @overload
    def send_recv(
        self,
        array: Any,
        dest: int,
        into: _Array,
        source: int,
        *,
        async_op: Waits = ...,
        **how: Unpack[OperationOptions],
    ) -> _Array: ...
    @overload
    def send_recv(
        self,
        array: Any,
        dest: int,
        into: _Array,
        source: int,
        *,
        async_op: Starts,
        **how: Unpack[OperationOptions],
    ) -> Handle[_Array]: ...
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
            msg = "send_recv: the arrays overlap; received elements would overwrite those to be sent"
            raise InputError(msg)
        exchanges = (
            (PeerExchange(dest, flat.elements, out.elements),)
            if dest == source
            else (PeerExchange(dest, flat.elements, None), PeerExchange(source, None, out.elements))
        )

        def run() -> Any:
            self._exchange("send_recv", exchanges, flat, out, timeout, kind)
            return out.give_back()

        return self._do(run, async_op=async_op)

    def send_parts(
        self, peers: Sequence[int], array: Any, *, timeout: float | None = None, kind: str = ""
    ) -> None:
        """Send each of several ranks its part of an array, in their order; each calls `recv_parts`."""
        flat = self._engine.flatten(array, writable=False)
        part = self._part_of("send_parts", peers, flat.elements)
        exchanges = tuple(PeerExchange(peer, part, None, place * part) for place, peer in enumerate(peers))
        self._do(lambda: self._exchange("send_parts", exchanges, flat, flat, timeout, kind), async_op=False)

    def recv_parts(
        self,
        peers: Sequence[int],
        array: Any,
        *,
        place: int = 0,
        timeout: float | None = None,
        kind: str = "",
    ) -> None:
        """Receive from each of several ranks a part of an array, in their order.

        Parameters
        ----------
        place
            Number of this rank among those that the peer sends to.
        """
        flat = self._engine.flatten(array, writable=True)
        part = self._part_of("recv_parts", peers, flat.elements)
        exchanges = tuple(
            PeerExchange(peer, None, part, number * part, place * part) for number, peer in enumerate(peers)
        )

        def run() -> None:
            self._exchange("recv_parts", exchanges, flat, flat, timeout, kind)
            flat.give_back()

        self._do(run, async_op=False)

    def _part_of(self, name: str, peers: Sequence[int], elements: int) -> int:
        for peer in peers:
            self._check_peer(peer)
        if len({*peers}) != len(peers) or not peers or elements % len(peers):
            msg = f"{name}: {elements} elements cannot be dealt out to ranks {list(peers)}"
            raise InputError(msg)
        return elements // len(peers)

    def gather(
        self,
        array: Any,
        root: int = 0,
        *,
        out: Any = None,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Any:
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
            exchanges: tuple[PeerExchange, ...] = (PeerExchange(root, part, None, 0, self.rank * part),)
            return self._do(
                lambda: self._exchange("gather", exchanges, flat, flat, timeout, kind), async_op=async_op
            )
        whole = flat.empty(self.size) if out is None else self._into("gather", out, flat, part * self.size)
        exchanges = tuple(
            PeerExchange(rank, None, part, rank * part) for rank in range(self.size) if rank != root
        )

        def run() -> Any:
            own = whole.part(root * part, (root + 1) * part)
            if not own.is_at(flat):
                own.fill(flat)
            if exchanges:
                self._exchange("gather", exchanges, whole, whole, timeout, kind)
            return whole.take() if out is None else whole.give_back()

        return self._do(run, async_op=async_op)

    def scatter(
        self,
        array: Any,
        root: int = 0,
        *,
        out: Any,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Any:
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
            exchanges: tuple[PeerExchange, ...] = (PeerExchange(root, None, part, 0, self.rank * part),)
        else:
            flat = self._engine.flatten(array, writable=False)
            if flat.elements != part * self.size or flat.dtype != into.dtype:
                have = f"{flat.elements} elements of {flat.dtype} for {self.size} ranks"
                msg = f"scatter: {have}, but out has {part} of {into.dtype}"
                raise InputError(msg)
            exchanges = tuple(
                PeerExchange(rank, part, None, rank * part) for rank in range(self.size) if rank != root
            )

        def run() -> Any:
            if self.rank != root:
                self._exchange("scatter", exchanges, into, into, timeout, kind)
                return into.give_back()
            if exchanges:
                self._exchange("scatter", exchanges, flat, flat, timeout, kind)
            own = flat.part(root * part, (root + 1) * part)
            if not own.is_at(into):
                into.fill(own)  # last: it may lie where another rank's part was
            return into.give_back()

        return self._do(run, async_op=async_op)

    def _check_peer(self, peer: int) -> None:
        if not is_rank(peer, self.size) or peer == self.rank:
            what = "is this rank itself" if peer == self.rank else f"is none of 0..{self.size - 1}"
            msg = f"rank {self.rank} has no peer {peer!r}: that {what}"
            raise InputError(msg)


def _check_no_array(name: str, what: str, given: Any) -> None:
    if given is not None:
        msg = f"{name}: {what} was given at a rank that is not the root; give None"
        raise InputError(msg)
