"""
Weft's runtime on Linux: memory that ranks share, links between them, and what they run over these.
"""

from collections.abc import Callable, Sequence
import enum
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray

import weft._core


def version() -> str:
    """Return the version this extension was built as."""

def reduce(into: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], other: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], dtype: str, op: str) -> None:
    """into = into op other, element by element."""

def reduce_to(out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], a: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], dtype: str, op: str) -> None:
    """out = a op b, element by element."""

def divide(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], dtype: str, by: int) -> None:
    """values = values / by, the last step of an average."""

def cpu_levels() -> list[str]:
    """Instruction sets this machine can run, slowest first."""

def cpu_level() -> str:
    """The instruction set in use."""

def set_cpu_level(name: str) -> None:
    """Use one of cpu_levels() in this process; all give the same bits."""

class Host:
    """This rank's part of the memory that the ranks of one machine share."""

    def __init__(self, rank: int, ranks: int, arena_bytes: int, crowded: bool, readable: bool) -> None: ...

    @property
    def descriptor(self) -> int: ...

    @property
    def arena_bytes(self) -> int: ...

    @property
    def arena_address(self) -> int: ...

    def attach(self, rank: int, pid: int, descriptor: int, arena_bytes: int) -> None:
        """Map another rank's memory."""

    def can_read(self, rank: int, address: int, expected: int) -> bool:
        """Whether the kernel lets this process read another rank's memory."""

    def start_watch(self, suspect_after_ms: int, frozen_after_ms: int, rank_of: Sequence[int], job_ranks: int) -> None:
        """Begin to send heartbeats, and to watch those of the others."""

    def losses(self) -> list[tuple[int, bool]]:
        """
        Ranks of the job that were declared lost, each with whether it is only frozen.
        """

    def reset(self, channel: int) -> None:
        """Make a channel as new."""

    @property
    def cut(self) -> tuple[int, int, int] | None:
        """
        Ranks of the job at both ends of a connection that was cut, and which of theirs it is.
        """

    def mend(self) -> None:
        """Forget the cut."""

    def news(self, teller: int, channel: int) -> tuple[int, int, int] | None:
        """
        What a rank said last about its communicator on a channel: which, whom it waits for or blames, and why.
        """

    def close(self) -> None:
        """Leave on purpose."""

class Heartbeats:
    """
    Beats between this rank and rank 0, over sockets that stay the caller's.
    """

    def __init__(self, host: Host, sockets: Sequence[int], suspect_after_ms: int, silent_after_ms: int) -> None: ...

    def close(self) -> None:
        """Leave on purpose."""

class Script:
    """What one rank does in one collective."""

    @property
    def tasks(self) -> int: ...

    def rows_sent(self, peer: int) -> list[int]:
        """
        The row of each segment for a peer, in the order in which a socket sends those that are ready.
        """

    @property
    def scratch_elements(self) -> int: ...

    @property
    def stage_elements(self) -> int: ...

def write_script(*, table: weft._core.Table, ranks: int, slots: int, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], pairs: bool, elsewhere: bool, output_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], segment: int, rank: int, max_segments: int, connections: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], in_: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], of_route: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], needs_all: bool) -> Script:
    """The part of a schedule that concerns one rank; sizes in elements."""

def write_exchange(exchanges: Sequence[tuple[int, int, int, int, int, int]], segment: int, connections: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Script:
    """
    Elements to and from single peers: (peer, sends, receives, here, there, code), -1 where nothing goes that way.
    """

CHANNELS: int = 16

def crc32c(data: bytes, crc: int = 0, portable: bool = False) -> int:
    """Checksum of bytes, continued from `crc`."""

class Status(enum.Enum):
    """How an operation ended."""

    done = 0

    lost = 1

    frozen = 2

    left = 3

    differs = 4

    timed_out = 5

    interrupted = 6

    given_up = 7

    cut = 8

    corrupt = 9

class Waiting:
    """What an operation waits for."""

    @property
    def rank(self) -> int: ...

    @property
    def row(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def silent_ms(self) -> int: ...

class OperationResult:
    """How an operation ended, and through whom."""

    @property
    def status(self) -> Status: ...

    @property
    def rank(self) -> int: ...

    @property
    def row(self) -> int: ...

    @property
    def waited_for(self) -> int: ...

class Executor:
    """Runs scripts over links to the other ranks."""

    def __init__(self, host: Host, channel: int, communicator: int, rank: int, job: Sequence[int], local: Sequence[int], sockets: Sequence[Sequence[int]], can_read: Sequence[int], checksums: Sequence[int]) -> None: ...

    def on_wait(self, tell: Callable[[Waiting], None]) -> None:
        """
        Have a function called when an operation has waited for long, or for a rank that is silent.
        """

    @property
    def waiting(self) -> Waiting:
        """What the operation under way waits for; also from other threads."""

    def close(self) -> None:
        """Leave on purpose; other channels of the host go on."""

    def cancel(self) -> None:
        """End the operation under way, from any thread; no other can follow."""

    @property
    def sequence(self) -> int: ...

    def run(self, script: Script, fingerprint: int, buffer: object, output: object, scratch: object, large: bool, dtype: str, op: str, timeout_ms: int) -> OperationResult:
        """
        Run one operation; never raises for what happens to peers, but says so.
        """

class RepeatedOperation:
    """An operation in place that is made again and again."""

    def __init__(self, executor: Executor, script: Script, fingerprint: int, scratch: object, bytes: int, output: tuple[int, int], large: bool, dtype: str, op: str) -> None: ...

class OperationRing:
    """The latest operations of a communicator."""

    def __init__(self, most: int) -> None: ...

    def begin(self, prepared: object) -> None:
        """Note that an operation begins."""

    def end(self) -> None:
        """Note that the latest is over."""

    def resume(self, count: int) -> None:
        """Forget those after the first `count`."""

    @property
    def count(self) -> int:
        """How many have begun."""

    @property
    def latest(self) -> Any:
        """What was prepared for the latest operation, or None."""

    @latest.setter
    def latest(self, prepared: object | None) -> None: ...

    @property
    def entries(self) -> list[Any]:
        """
        Of each, oldest first: its number, what was prepared for it, when it began and when it ended, in seconds as time.monotonic() counts them, or None while it is under way.
        """

class OperationLock:
    """A lock that is held during each operation, as threading.Lock is."""

    def __init__(self) -> None: ...

    def acquire(self, timeout: float = -1.0) -> bool:
        """
        Wait for at most so many seconds, or without end; False if another thread still has it.
        """

    def release(self) -> None: ...

    def locked(self) -> bool: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

class RepeatedOperations:
    """
    All-reduces in place that ran before, repeated without Python in between.
    """

    def __init__(self, ring: OperationRing, array_type: object, lock: OperationLock) -> None: ...

    def learn(self, prepared: object, operation: RepeatedOperation, dtype: object, op: str, kind: str) -> None:
        """Keep an operation for arrays of its size and of this type."""

    def forget(self) -> None:
        """Let all operations take the long way again."""

    @property
    def runs_in_this_thread(self) -> bool:
        """
        Whether the calling thread is within one, of which a handler can be the reason.
        """

    def run(self, array: object | None, op: object | None, kind: object | None, wait_s: object | None) -> Any:
        """True: done. False: it has to take the long way. Else how it ended."""

class WorkerQueue:
    """What a worker has to do, in order."""

    def __init__(self) -> None: ...

    def put(self, task: object) -> None:
        """Queue a task, which `get` returns."""

    def get(self) -> Any:
        """
        The next task, or a function and the call that it completes; None at the end. Repeated calls that are queued before it are carried out, without the interpreter's lock.
        """

    def settle(self) -> None:
        """Note that what `get` has returned is over."""

    def hold(self) -> None:
        """Let a thread that sleeps in `get` sleep until `release`."""

    def release(self) -> None:
        """Wake it, if something was queued meanwhile."""

    def end(self) -> None:
        """Have `get` return None after what was queued before."""

    @property
    def pending(self) -> int:
        """Tasks and calls that are queued or under way."""

class RepeatedCall:
    """
    A call on one array that is made again and again, and the handle of its latest start.
    """

    def __init__(self, queue: WorkerQueue, known: RepeatedOperations, operation: RepeatedOperation | None, prepared: object | None, array: object, dtype: str, divided: tuple[int, int], by: int, run: object, fail: object, check: object) -> None: ...

    def start(self, wait_s: object) -> bool:
        """Queue it; False if nothing has happened because it takes the long way."""

    @property
    def usable(self) -> bool:
        """Whether nothing that it was made for has changed since."""

    def wait(self) -> None:
        """Return once it is over; raise its error."""

    def is_done(self) -> bool:
        """Whether `wait` would return at once."""

    @property
    def error(self) -> Any:
        """Its error; None if it has succeeded, or is not over yet."""

    def complete(self, result: object | None = None, error: object | None = None) -> None:
        """Complete it after the long way, without a result or with an error."""
