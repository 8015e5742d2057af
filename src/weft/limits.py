"""Every bound in one table.

Input is hostile until proven small: each parser, builder and engine checks against these before it
allocates. A bound that is hit is a `LimitError` naming the bound, never a crash or a swap storm.
"""

from __future__ import annotations

import math
from typing import Final

from weft.errors import InputError, LimitError

MAX_TEXT_BYTES: Final = 16 << 20
"""Largest TOML, XML, JSON or ``nvidia-smi`` file."""

MAX_SCHEDULE_BYTES: Final = 64 << 20
"""Largest binary schedule file, compressed."""

MAX_HEADER_BYTES: Final = 16 << 20
"""The part of it that holds the topology, decompressed: half a million links. All of a plan's together."""

MAX_COLUMN_BYTES: Final = 1 << 30
"""All columns of a schedule file together, decompressed: a ring on 4,096 ranks has two thirds of this."""

MAX_PLANNED_SCHEDULES: Final = 256
"""Schedules of one plan; the registry has a tenth of this."""

MAX_PLAN_ENTRIES: Final = 4096
"""Ranges of one plan, or sizes in detail, or candidates."""

MAX_TRACE_EVENTS: Final = 5_000_000
"""Spans in one trace file; viewers give up long before."""

MAX_RECORDED_SPANS: Final = 1 << 25
"""Spans of links and endpoints that a simulated training job keeps for its trace: a gigabyte."""

MAX_REPORT_SOURCES: Final = 64
MAX_REPORT_COMPARISONS: Final = 256
"""Sources of a report, and comparisons in them; each has a table of its own."""

MAX_REPORT_SOURCE_BYTES: Final = 256 << 20
"""Largest plan, result or trace that a report reads; a trace of a million spans has half of this."""

MAX_PROFILE_SPANS: Final = 1_000_000
"""Spans that one rank's profile keeps: some ten thousand steps of ten groups."""

MAX_DEPTH: Final = 64
"""Deepest nesting in any file."""

MAX_SPEC_CHARACTERS: Final = 4096
"""Longest topology spec string or name."""

MAX_TOML_TOKENS: Final = 200_000
"""Lines and values of a TOML file: reading one takes microseconds each, and this keeps it within seconds."""

MAX_YAML_LINES: Final = 200_000
"""Lines of a YAML file that say something."""

MAX_XML_BYTES: Final = 8 << 20
MAX_XML_ELEMENTS: Final = 65_536
MAX_CPUS: Final = 512
"""CPUs of one NCCL topology file; each is wired to each."""

MAX_GPUS: Final = 256
"""GPUs of one machine, in the output of ``nvidia-smi topo -m``."""

MAX_NVLINK_GPUS: Final = 1024
"""GPUs of one NVLink domain, or wired all to all; 576 is the most that NVIDIA's NVLink 5 switches join."""

MAX_PREAMBLE_LINES: Final = 1000
MAX_LINE_CHARACTERS: Final = 65_536

MAX_DRAWN_NODES: Final = 3000
MAX_DRAWN_CABLES: Final = 12_000
"""Beyond either a drawing shows a summary only."""

MAX_DRAWN_PANELS: Final = 600
MAX_DRAWN_PARTS: Final = 40_000
"""Networks of a picture of trees, and nodes or links of them all: some MB of SVG."""

MAX_RANKS: Final = 65_536
MAX_SWITCHES: Final = 65_536
MAX_LINKS: Final = 4_000_000
MAX_DIMENSIONS: Final = 16
MAX_CLOUD_GPUS: Final = 8192
"""GPUs of a cloud that others share: their jobs are placed one by one, and each looks at every host."""

MAX_ADDRESSES: Final = 1 << 17
"""Links with addresses of their own."""


MAX_CHUNKS: Final = 1 << 24
"""An all-to-all on 4,096 ranks has as many."""

MAX_TRANSFERS: Final = 1 << 25
"""Rows of one schedule: a ring on 4,096 ranks has just as many."""

MAX_STEPS: Final = 1 << 22
MAX_SLOTS: Final = 1 << 10
MAX_PORTS: Final = 256
MAX_VIRTUAL_CHANNELS: Final = 64
MAX_VIRTUAL_BUFFERS: Final = 1 << 23
MAX_TABLE_MESSAGES: Final = 1 << 19
MAX_PACKET_EVENTS: Final = 1 << 34
MAX_TABLE_STEPS: Final = 1 << 22
"""Steps of the tables of all ranks together: an interface passes over each, even if it has nothing to do."""

MAX_WAY_LINKS: Final = 1 << 24
"""Links of all ways that the messages of tables take, together."""

MAX_PLACES: Final = 1 << 24
"""Ranks times slots: an executor keeps a little about each."""

MAX_NOTES: Final = 100
MAX_TREES_PER_ROOT: Final = 64
MAX_SEGMENTS: Final = 1 << 26
"""Segments in one simulation, summed over all messages."""

MAX_ROUTE_ENTRIES: Final = 1 << 26
"""Links of all routes of one schedule together, explicit or the network's own."""

MAX_WORK: Final = 1.2e10
"""Operations that reading, verifying or simulating one schedule may take unless the caller allows more.

One takes about a nanosecond of an ordinary processor. A file of a megabyte can ask for hours, so what it asks
for is estimated first. A ring on 4,096 ranks is verified and simulated within this."""

MAX_PACKET_WORK: Final = 6e10
"""The same for schedules that are carried out packet by packet; 64 MiB on 64 ranks take half of this."""

MAX_SEED: Final = 2**63 - 1

DEFAULT_ARENA_BYTES: Final = 16 << 30
MAX_ARENA_BYTES: Final = 1 << 42
"""Address space for tensors that ranks share; memory is taken as it is used."""

MIN_BANDWIDTH: Final = 1
MAX_BANDWIDTH: Final = 10**15
"""Bytes per second of one link."""

MAX_LATENCY_PS: Final = 3600 * 10**12
"""One hour: beyond it the unit is surely wrong."""

MAX_SIZE_BYTES: Final = 1 << 50
"""Largest buffer of a collective."""

MAX_LAYERS: Final = 1 << 16
"""Layers of a model whose training is modelled, or fusions of them that are compared."""

MAX_BATCH: Final = 1 << 20
"""Samples that one rank computes in an iteration."""

MAX_TASKS: Final = 1 << 20
"""Tasks of the iterations that are modelled: a thousand tensors, a thousand times."""

MAX_SWEEP: Final = 10_000
"""Points of one sweep."""

MAX_TASK_CHARACTERS: Final = 128 << 20
"""JSON that a worker gets or gives back for one point: a schedule of the largest size, in base 64."""

MAX_SAMPLES: Final = 1 << 20
"""Measured times that a line is fitted through."""

MAX_TIME_PS: Final = (1 << 61) - 1
"""Simulated time is a signed 64-bit count of picoseconds; this leaves room to add."""

MAX_JOB_RANKS: Final = 1024
"""Ranks of one running job: rank 0 holds a connection to each while they meet."""

MAX_LOCAL_RANKS: Final = 256
"""Ranks that ``weft run`` starts on one machine; it holds three open files for each."""

MAX_RESTARTS: Final = 1000
"""How often ``weft run`` starts a job again."""

MAX_PENDING_PEERS: Final = 64
MAX_UNPROVEN_BYTES: Final = 1024
MAX_UNPROVEN_SECONDS: Final = 5.0
"""What peers may take of a listener before they prove that they belong to the job."""

MAX_MEMBER_BYTES: Final = 512
MAX_EXCHANGE_BYTES: Final = 64 << 10
"""One rank's part of an exchange through the control plane."""

MAX_FLIGHT_BYTES: Final = 1 << 20
"""A flight record, the file that a rank writes when its job fails."""

MAX_UNEXPECTED_MESSAGES: Final = 65_536
MAX_UNEXPECTED_BYTES: Final = 256 << 20
"""Messages from one rank to another that are kept until a receive asks for their tag."""

MAX_OUTPUT_LINE_BYTES: Final = 64 << 10
"""``weft run`` cuts longer lines of its ranks into lines of this length."""

MAX_STUDIO_SESSIONS: Final = 16
MAX_STUDIO_EDITS: Final = 64
"""Clusters that ``weft studio`` keeps at once, and edits of each."""

MAX_STUDIO_RANKS: Final = 4096
MAX_STUDIO_LINKS: Final = 65_536
"""Of a cluster in the studio: every edit draws it anew."""

MAX_STUDIO_BODY_BYTES: Final = 1 << 20
"""Body of one request to the studio; an uploaded topology is a part of it."""

MAX_STUDIO_ALGORITHMS: Final = 64
MAX_STUDIO_WAITING: Final = 8
"""Comparisons that wait for a worker; one more is refused."""

MAX_STUDIO_REQUESTS: Final = 64
MAX_STUDIO_CONNECTIONS: Final = 128
"""Requests that the studio answers at once, and open connections; more are refused."""

MAX_STUDIO_EVENT_BYTES: Final = 64 << 20
"""One line that a worker of the studio writes: the page of a finished comparison is the longest."""


def check(what: str, value: int, bound: int) -> int:
    """Return `value` if it is within `bound`, else raise a `LimitError` that names both.

    Examples
    --------
    >>> check("ranks", 8, MAX_RANKS)
    8
    """
    if value > bound:
        shown = f"{value:,}" if value < 10**30 else "a number of more than 30 digits"
        raise LimitError(f"{what}: {shown} is more than the {bound:,} that Weft accepts")
    return value


def check_work(what: str, work: float, most: float | None) -> None:
    """Raise a `LimitError` if `what` is estimated to take more operations than allowed; None allows any.

    Examples
    --------
    >>> check_work("verifying ring.weft", 3.4e10, MAX_WORK)
    Traceback (most recent call last):
    ...
    weft.errors.LimitError: verifying ring.weft: about 34,000,000,000 operations, of a nanosecond or so each,
    are more than the 12,000,000,000 that Weft does unasked; --max-work 4e10 allows them (in Python,
    max_work=)
    """
    if most is None or work <= most:
        return
    exponent = math.floor(math.log10(work))
    enough = f"{math.floor(work / 10**exponent) + 1}e{exponent}"
    msg = (
        f"{what}: about {float(f'{work:.1e}'):,.0f} operations, of a nanosecond or so each, are more than "
        f"the {most:,.0f} that Weft does unasked; --max-work {enough} allows them (in Python, max_work=)"
    )
    raise LimitError(msg)


def too_long(what: str) -> LimitError:
    """Error about a simulated time that is more than the engines count."""
    return LimitError(f"{what}: takes more than the {MAX_TIME_PS // 10**12:,} s that the engine counts")


def too_much_work(what: str, most: float | None) -> LimitError:
    """Error about work that could not be estimated, and turned out to be more than allowed."""
    return LimitError(
        f"{what}: more than the {most or 0:,.0f} operations that Weft does unasked; give a larger --max-work "
        "(in Python, max_work=)"
    )


def check_text(
    what: str,
    text: object,
    error: type[InputError],
    *,
    empty: bool = False,
    longest: int = MAX_SPEC_CHARACTERS,
) -> None:
    """Raise `error` unless this is text that a file can hold and give back.

    Examples
    --------
    >>> check_text("the name", None, InputError)
    Traceback (most recent call last):
    ...
    weft.errors.InputError: the name must be text, not NoneType
    """
    if not isinstance(text, str):
        raise error(f"{what} must be text, not {type(text).__name__}")
    if not text and not empty:
        raise error(f"{what} must not be empty")
    check(f"characters of {what}", len(text), longest)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        msg = f"{what}: {text[problem.start : problem.end][:8]!a} is no character of Unicode text"
        raise error(msg) from problem
