"""Which engine moves the data of a job, and how its ranks are connected by it.

The caller of `weft.init` names the engine; nothing is chosen in its place. `connect_native` is for ranks that
meet elsewhere than where their launcher says, as those of a process group of torch do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from weft.errors import InputError
from weft.runtime import flight_recorder
from weft.runtime.bootstrap.client import join
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.environment import find_place
from weft.runtime.engines.native_engine import NativeEngine

if TYPE_CHECKING:
    from weft.runtime.bootstrap.environment import Place
    from weft.runtime.communicator_inputs import CommunicatorInputs
    from weft.runtime.engines import Engine
    from weft.runtime.transport.rank_transport import TransportSettings

EngineName = Literal["native", "mpi", "torch"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)


def connect_engine(
    engine: str,
    inputs: CommunicatorInputs,
    settings: TransportSettings,
    group: Any,
    timeout: float,
    connect_timeout: float,
) -> Engine[Any]:
    """Connect the ranks of the job that this process was started in; parameters as for `weft.init`."""
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is unknown, expected {', '.join(ENGINES)}")
    if engine != "native" and settings.transport != "auto":
        raise InputError(f"transport {settings.transport!r} is for the native engine; {engine} has its own")
    if engine != "torch" and group is not None:
        raise InputError(f"a process group is for engine 'torch', not {engine!r}")
    connect_timeout = min(timeout, check_timeout(connect_timeout, "connect_timeout"))
    if engine == "mpi":
        from weft.runtime.engines.mpi_engine import MpiEngine, load_mpi

        mpi = load_mpi()
        return MpiEngine(mpi, mpi.COMM_WORLD, timeout=timeout)
    if engine == "torch":
        from weft.runtime.engines.torch_engine import TorchEngine, find_group

        return TorchEngine.join(find_group(group), timeout=timeout, connect_timeout=connect_timeout)
    return connect_native(find_place(), inputs, settings, timeout, connect_timeout)


def connect_native(
    place: Place,
    inputs: CommunicatorInputs,
    settings: TransportSettings,
    timeout: float,
    connect_timeout: float,
) -> NativeEngine:
    """Connect the ranks that meet at a place by Weft's own engine; other parameters as for `weft.init`."""
    with flight_recorder.in_phase("joining the job, waiting until all ranks have come to rank 0"):
        control_plane = join(place, timeout=timeout)
    with flight_recorder.in_phase("connecting to the other ranks"):
        return NativeEngine.connect(control_plane, settings, timeout=connect_timeout, topology=inputs.network)
