"""What a simulation tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from weft import units
from weft.collective_names import bus_factor
from weft.notebook_display import ShortRepr, data_frame, html_card, short_line, short_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule

WAITED_FOR: Final = ("start", "dependency", "link")

_TIMES: Final = (("s", 1e12), ("ms", 1e9), ("us", 1e6), ("ns", 1e3))
"""Units of a legend, with their picoseconds."""

_BUSIEST: Final = 5


@dataclass(frozen=True, slots=True)
class PathStep:
    """One stretch of the critical path: a segment under way, and what kept it from starting earlier.

    `links` are the numbers of those that it crosses, in order.
    """

    row: int
    segment: int
    src: int
    dst: int
    chunk: int
    step: int
    start_ps: int
    end_ps: int
    waited_for: str
    links: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft simulate --json`` prints them."""
        fields = asdict(self)
        return {"transfer": fields.pop("row"), **fields, "links": list(self.links)}


@dataclass(frozen=True, eq=False, repr=False)
class CriticalPath(Sequence[PathStep]):
    """Stretches of the critical path, first to last: a sequence that makes each when it is asked for.

    A path can have as many stretches as there are segments, and few of them are ever looked at.

    Parameters
    ----------
    schedule
        What ran.
    row, segment, waited, start_ps, end_ps
        Columns; `waited` numbers `WAITED_FOR`.
    """

    schedule: Schedule
    row: NDArray[np.int32]
    segment: NDArray[np.int32]
    waited: NDArray[np.uint8]
    start_ps: NDArray[np.int64]
    end_ps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, index: int) -> PathStep: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[PathStep, ...]: ...

    def __getitem__(self, index: int | slice) -> PathStep | tuple[PathStep, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        row, schedule = int(self.row[index]), self.schedule
        return PathStep(
            row,
            segment=int(self.segment[index]),
            **{name: int(getattr(schedule, name)[row]) for name in ("src", "dst", "chunk", "step")},
            start_ps=int(self.start_ps[index]),
            end_ps=int(self.end_ps[index]),
            waited_for=WAITED_FOR[self.waited[index]],
            links=self._links_of(row),
        )

    @cached_property
    def _crossed(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
        """Transfers on the path, ascending; where the links of each begin among all; and these links."""
        schedule, rows = self.schedule, np.unique(self.row)
        route = schedule.route[rows]
        src, dst = schedule.src[rows], schedule.dst[rows]
        # A transfer without a route of its own takes that of the network; one with a route is no pair here.
        own = route >= 0
        begins, found = schedule.topology.routes(src, np.where(own, src, dst))
        first, counts = begins[:-1].copy(), np.diff(begins)
        first[own] = len(found) + schedule.route_offsets[route[own]]
        counts[own] = np.diff(schedule.route_offsets)[route[own]]
        links = np.concatenate([found, schedule.route_links])
        return rows, np.stack([first, first + counts]), links

    def _links_of(self, row: int) -> tuple[int, ...]:
        rows, spans, links = self._crossed
        begin, end = spans[:, np.searchsorted(rows, row)].tolist()
        return tuple(links[begin:end].tolist())

    def count_waits(self) -> dict[str, int]:
        """How many stretches waited for each of `WAITED_FOR`."""
        counts = np.bincount(self.waited, minlength=len(WAITED_FOR)).tolist()
        return dict(zip(WAITED_FOR, counts, strict=True))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timeline(ShortRepr):
    """Every segment on every link it crossed, in columns; `row` is the first transfer of its message."""

    row: NDArray[np.int32]
    segment: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    link: NDArray[np.int32]
    start_ps: NDArray[np.int64]
    end_ps: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Times of one run.

    Parameters
    ----------
    schedule
        What ran.
    size_bytes, segment_bytes
        On how much, cut how; no segment size means whole messages.
    sharing
        How links were shared, ``"queue"`` or ``"fluid"``.
    time_ps
        When the last transfer was applied.
    segments, events
        How much work the engine had.
    link_busy_ps
        How long each link was occupied.
    rank_finish_ps
        When each rank had sent and applied its last.
    critical_path
        The chain of transfers that the total time is made of, first to last.
    timeline
        All of it, if asked for.
    cpu_seconds
        What the simulation cost.
    untried_segments
        Segment sizes in bytes that might have been faster and were left out, because they cut too finely or
        because the time was over.
    """

    schedule: Schedule
    size_bytes: int
    segment_bytes: int | None
    sharing: str
    time_ps: int
    segments: int
    events: int
    link_busy_ps: NDArray[np.int64]
    rank_finish_ps: NDArray[np.int64]
    critical_path: CriticalPath
    timeline: Timeline | None
    cpu_seconds: float
    untried_segments: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of the whole collective."""
        return self.time_ps / units.PS_PER_S

    @property
    def algbw_GBps(self) -> float:
        """Buffer size over time, in 10^9 bytes per second."""
        return self.size_bytes / self.seconds / 1e9 if self.time_ps else 0.0

    @property
    def busbw_GBps(self) -> float:
        """Algorithm bandwidth, scaled as nccl-tests does so that it compares with a link's speed."""
        return self.algbw_GBps * bus_factor(self.schedule.collective, self.schedule.ranks)

    @cached_property
    def busiest_link(self) -> int:
        """The link that was occupied longest."""
        return int(np.argmax(self.link_busy_ps))

    @property
    def slowest_rank(self) -> int:
        """The rank that finished last."""
        return int(np.argmax(self.rank_finish_ps))

    def utilisation(self, link: int) -> float:
        """Share of the run in which a link was occupied."""
        return float(self.link_busy_ps[link]) / self.time_ps if self.time_ps else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft simulate --json`` prints, without the physical limit."""
        schedule = self.schedule
        return {
            "topology": schedule.topology.name,
            **{name: getattr(schedule, name) for name in ("collective", "algorithm", "digest")},
            "size_bytes": self.size_bytes,
            "segment_bytes": self.segment_bytes,
            "untried_segment_bytes": list(self.untried_segments),
            "sharing": self.sharing,
            **{name: getattr(self, name) for name in ("seconds", "time_ps", "algbw_GBps", "busbw_GBps")},
            **{name: getattr(schedule, name) for name in ("steps", "transfers", "messages")},
            "segments": self.segments,
            "simulation_seconds": self.cpu_seconds,
            "slowest_rank": self.slowest_rank,
            "rank_finish_ps": self.rank_finish_ps.tolist(),
            "link_busy_ps": self.link_busy_ps.tolist(),
            "critical_path": [step.to_dict() for step in self.critical_path],
        }

    def to_svg(self) -> str:
        """Draw the network with its links coloured by how long each is busy, as an SVG document."""
        from weft.topology.drawing import draw_svg

        name, scale = next(((name, scale) for name, scale in _TIMES if self.time_ps >= scale), _TIMES[-1])
        cut = "whole messages"
        if self.segment_bytes is not None:
            cut = f"segments of {units.format_size(self.segment_bytes)}"
        caption = f"{self._what()}, {cut}: {units.human_seconds(self.seconds)}"
        load = self.link_busy_ps / scale
        return draw_svg(self.schedule.topology, load=load, unit=f"{name} busy", caption=caption)

    def to_pandas(self) -> Any:
        """The links as a ``pandas.DataFrame``: their ends and speed, seconds busy, and share of the time."""
        from weft.topology.tables import link_columns

        busy = self.link_busy_ps / units.PS_PER_S
        use = busy / self.seconds if self.time_ps else np.zeros(len(busy))
        columns = {**link_columns(self.schedule.topology), "busy_s": busy, "utilisation": use}
        return data_frame("SimulationResult.to_pandas", columns)

    def _what(self) -> str:
        return f"{self.schedule.algorithm} {self.schedule.collective} of {units.format_size(self.size_bytes)}"

    def _repr_html_(self) -> str:
        topology = self.schedule.topology
        busy = self.link_busy_ps
        facts = [
            ("time", units.human_seconds(self.seconds)),
            ("algbw", f"{self.algbw_GBps:.2f} GB/s"),
            ("busbw", f"{self.busbw_GBps:.2f} GB/s"),
            ("steps", f"{self.schedule.steps:,}"),
            ("sharing", self.sharing),
            ("idle links", f"{int((busy == 0).sum()):,} of {topology.links:,}"),
        ]
        rows = [
            [
                topology.link_name(link),
                units.human_bandwidth(int(topology.bandwidth[link])),
                units.human_seconds(int(busy[link]) / units.PS_PER_S),
                f"{100 * self.utilisation(link):.1f} %",
            ]
            for link in np.argsort(-busy, kind="stable")[:_BUSIEST].tolist()
        ]
        columns = ("busiest link", "bandwidth", "busy", "of the time")
        title = f"{self._what()} on {topology.name}"
        return html_card(title, facts, columns=columns, rows=rows, drawing=self.to_svg())

    def __repr__(self) -> str:
        what = (
            f"{short_name(self.schedule.algorithm)} {self.schedule.collective} "
            f"of {units.format_size(self.size_bytes)}"
        )
        speed = f"{units.human_seconds(self.seconds)}, {self.algbw_GBps:.2f} GB/s"
        return short_line(f"<SimulationResult {what}: {speed}>")
