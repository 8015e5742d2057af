"""Agreement on what rank 0 makes for all ranks: planning on each of them could end differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.errors import RuntimeFailure, WeftError
from weft.planning.plan_file import decode_plan, encode_plan
from weft.planning.planner import plan
from weft.runtime.byte_exchange import CommunicatorWords, broadcast_bytes
from weft.runtime.planning_notice import PlanningNotice
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.collective_names import Collective
    from weft.planning import Plan
    from weft.runtime.communicator import Communicator
    from weft.topology import Topology

_LONGEST_COMPLAINT: Final = 4096
_MADE, _FAILED = b"+", b"-"


def share(communicator: Communicator, make: Callable[[], bytes], seconds: float) -> bytes:
    """Give all ranks what `make` returns on rank 0; every rank calls this.

    Parameters
    ----------
    communicator
        Of all the ranks.
    make
        Called on rank 0 only.
    seconds
        Time that it may take; the other ranks wait a while longer.

    Raises
    ------
    RuntimeFailure
        If rank 0 cannot make it; on all ranks.
    """
    data, failure = b"", None
    if communicator.rank == 0:
        try:
            data = _MADE + make()
        except WeftError as error:
            failure = error
            data = _FAILED + str(error).encode()[:_LONGEST_COMPLAINT]
    words = CommunicatorWords(communicator, "planning", communicator.timeout + 2 * seconds)
    told = broadcast_bytes(words, data)
    if not told.startswith(_MADE):
        raise RuntimeFailure(f"rank 0 gives up: {told[1:].decode('utf-8', 'replace')}") from failure
    return told[1:]


def agree_on_plan(
    communicator: Communicator,
    topology: Topology | str,
    seconds: float,
    before: Plan | None = None,
    collective: Collective = "all_reduce",
    *,
    check: Callable[[Topology], None] | None = None,
) -> Plan:
    """Plan on rank 0 and give the plan to everybody; every rank calls this.

    Parameters
    ----------
    communicator
        Of all the ranks.
    topology
        What to plan for; that of rank 0 counts.
    seconds
        That rank 0 may plan for.
    before
        A plan to start from.
    collective
        What to plan.
    check
        Refuses a topology that does not fit, before rank 0 spends time on it.

    Raises
    ------
    RuntimeFailure
        If rank 0 cannot plan; on all ranks.
    """

    def make() -> bytes:
        network = load_topology(topology)
        if check is not None:
            check(network)
        with PlanningNotice(f"the {collective} on {network.name}", seconds) as notice:
            found = plan(
                network, collective=collective, time_limit=seconds, warm_start=before, progress=notice.note
            )
        return encode_plan(found)

    return decode_plan(share(communicator, make, seconds))
