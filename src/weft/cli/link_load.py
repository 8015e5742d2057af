"""How long each link of a network is busy in one collective: what ``weft topology --load`` draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft import limits
from weft.cli import options
from weft.cli.busiest import print_busiest_links
from weft.cli.output import progress, warn_of
from weft.errors import InputError, printable

if TYPE_CHECKING:
    from weft.cli.console import Console
    from weft.simulation import SimulationResult
    from weft.topology import Topology


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What stands on the command line for a load; `algorithm` is None where none is asked for."""

    algorithm: str | None
    size: int | None
    collective: str
    root: int
    segment: str | int

    def check(self) -> None:
        """Raise an `InputError` if something is missing, or given for nothing."""
        if self.algorithm is None:
            reason = "is for a load; give --load ALGORITHM, such as --load ring"
            options.refuse_unused("size", "collective", "root", "segment", reason=reason)
        elif self.size is None:
            raise InputError("--load: say how much is sent; give --size, such as --size 64MiB")
        else:
            options.check_root(self.collective)

    def simulate(self, topology: Topology) -> SimulationResult | None:
        """Build, verify and simulate the schedule; None where none is asked for."""
        from weft.algorithms.resolver import resolve_algorithm
        from weft.simulation import simulate
        from weft.verification import inspect

        if self.algorithm is None or self.size is None:
            return None
        with progress("load") as report:
            report("schedule", 0, 0)
            schedule = resolve_algorithm(self.algorithm).build(topology, self.collective, self.root)
            report(f"{schedule.transfers:,} transfers", 0, 0)
            problem = inspect(schedule, max_work=limits.MAX_WORK).problem
            result = simulate(schedule, self.size, segment_bytes=self.segment, max_work=limits.MAX_WORK)
        warn_of(problem)
        return result


def show_load(result: SimulationResult, console: Console) -> None:
    """Print what ran and the links that were busy longest."""
    from weft.units import format_size, human_seconds

    schedule = result.schedule
    what = f"{schedule.algorithm} {schedule.collective} of {format_size(result.size_bytes)}"
    console.print()
    console.print_line(printable(f"{what}: {human_seconds(result.seconds)}"), "bold")
    console.print()
    print_busiest_links(console, schedule.topology, result.link_busy_ps, result.time_ps)


def load_document(result: SimulationResult) -> dict[str, Any]:
    """Fields of the load in the document of ``weft topology --json``."""
    names = ("size_bytes", "segment_bytes", "seconds", "time_ps")
    return {
        **{name: getattr(result.schedule, name) for name in ("algorithm", "collective", "digest")},
        **{name: getattr(result, name) for name in names},
        "link_busy_ps": result.link_busy_ps.tolist(),
    }
