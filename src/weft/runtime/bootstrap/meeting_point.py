"""Where rank 0 listens and the other ranks dial it: the address, the port and the secret of a job.

The port is the one in ``WEFT_PORT``: ``weft run`` takes a free one with `reserve_port` and sets the variable.
Without the variable rank 0 listens at any free port, if it can leave a note with the number and the secret
for the other ranks (`weft.runtime.bootstrap.secret_note`). Without such a note it takes the port beside
torchrun's own (`weft.runtime.bootstrap.environment`), and a job that has none of these is refused.
"""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.handshake import ProtocolError
from weft.runtime.bootstrap.listener import open_socket
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.resources import EXHAUSTED, close_on_error

if TYPE_CHECKING:
    from weft.runtime.bootstrap.environment import Place
    from weft.runtime.bootstrap.name_resolution import Where
    from weft.runtime.bootstrap.secret_note import SecretNote

_PORT_TAKEN_S: Final = 2.0
_PORT_PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class MeetingPoint:
    """Where to meet, and what to know there."""

    address: str
    port: int
    secret: bytes

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def choose_meeting_point(place: Place, note: SecretNote | None) -> MeetingPoint:
    """Where to meet: as the environment says, or the note that rank 0 leaves; port 0 means any free one."""
    if note is not None:
        place = replace(place, port=note.port, secret=note.secret, address=place.address or note.address)
    if place.secret is None:
        made = "" if place.launcher == "none" else f"{place.launcher} makes none; "
        msg = f"this job has no secret: {made}give every rank the same WEFT_SECRET or WEFT_SECRET_FILE"
        raise InputError(f"{msg}, 64 hexadecimal digits as 'openssl rand -hex 32' prints them")
    named = {"WEFT_ADDRESS": place.address, "WEFT_PORT": place.port}
    if unknown := [name for name, value in named.items() if value is None]:
        what = {"WEFT_ADDRESS": "a host name or address of rank 0", "WEFT_PORT": "a free port there"}
        msg = f"nobody says where rank 0 listens; set {' and '.join(f'{n} ({what[n]})' for n in unknown)}"
        raise InputError(msg)
    assert place.address is not None
    assert place.port is not None
    return MeetingPoint(place.address, place.port, place.secret)


def find_meeting_point(place: Place, left: float) -> MeetingPoint:
    """Where rank 0 is now; read anew each time, because a note may have been left by an earlier job."""
    if place.secret_exchange is None:
        return choose_meeting_point(place, None)
    note = place.secret_exchange.read(left)
    if note is None:
        raise ProtocolError(f"rank 0 has left no note at {place.secret_exchange}")
    return choose_meeting_point(place, note)


def reserve_port(address: str) -> tuple[socket.socket, int]:
    """Take a free port for a rank 0 that starts later; nobody else gets it while the socket is open."""
    family, where = resolve(address, 0, limits.MAX_UNPROVEN_SECONDS)
    holder = socket.socket(family, socket.SOCK_STREAM)
    with close_on_error(holder):
        # Bound but not listening, with this option on both: rank 0 can still bind it, and listen.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(where)
    return holder, holder.getsockname()[1]


def resolve(address: str, port: int, timeout: float, variable: str = "WEFT_ADDRESS") -> Where:
    """Family and socket address of where to listen."""
    try:
        return look_up(address, port, timeout, listens=True)[0]
    except TimeoutError as error:
        raise TimedOut("join", timeout, hint=f"{variable}: {error}") from error
    except OSError as error:
        msg = f"{variable}: {address}: {error.strerror or error}; give a host name or address of this machine"
        raise InputError(msg) from error


def listen_at(point: MeetingPoint, timeout: float) -> socket.socket:
    """Listen at exactly the given address: loopback stays loopback."""
    family, where = resolve(point.address, point.port, timeout)
    patience = time.monotonic() + min(timeout, _PORT_TAKEN_S)
    while True:
        try:
            return open_socket(family, where)
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            if error.errno == errno.EADDRNOTAVAIL:
                msg = f"{point.address} is no address of this machine; WEFT_ADDRESS must be one of rank 0's"
                raise InputError(msg) from error
            # A rank that dials may hold the port for an instant, if it is among those for outgoing calls.
            if error.errno != errno.EADDRINUSE or time.monotonic() > patience:
                msg = f"rank 0 cannot listen at {point}: {error.strerror}; set WEFT_PORT to a free port"
                raise RuntimeFailure(msg) from error
            time.sleep(_PORT_PAUSE_S)
