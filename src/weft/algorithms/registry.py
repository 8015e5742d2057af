"""The list of algorithms: one line each, loaded on first use.

A new algorithm is one module and one line here; a test checks that the line names exactly the collectives
that the module offers.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from weft.algorithms.keyword_options import find_options, format_value, read_options
from weft.errors import InputError, LimitError, ScheduleError, UnsupportedError, look_up, printable
from weft.notebook_display import ShortRepr

if TYPE_CHECKING:
    from types import ModuleType

    from weft.schedule import Schedule
    from weft.topology import Topology

ROOTED: Final = ("broadcast", "reduce")
"""Collectives with a root."""

_FILE_ENDINGS: Final = (".py", ".weft", ".json")


@dataclass(frozen=True, slots=True, repr=False)
class Refusal(ShortRepr):
    """An algorithm that does not apply somewhere or was not tried, and why.

    Parameters
    ----------
    algorithm
        Its registry name.
    reason
        One line for people.
    error
        The exception that said so, if there was one.
    """

    algorithm: str
    reason: str
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, algorithm: str, error: UnsupportedError | LimitError | MemoryError) -> Refusal:
        """Make the refusal that an exception stands for."""
        if isinstance(error, UnsupportedError):
            return cls(algorithm, error.reason, error)
        reason = "does not fit into memory" if isinstance(error, MemoryError) else str(error)
        return cls(algorithm, reason, error)

    def to_dict(self) -> dict[str, str]:
        """Fields as the documents of ``weft compare`` and ``weft plan`` have them."""
        return {"algorithm": self.algorithm, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One line of the registry, or such a line with options.

    Parameters
    ----------
    name
        Module under `weft.algorithms`; behind a colon the options, if some were given.
    collectives
        What it can do: the names of its public functions.
    summary
        One line for people.
    cost
        Roughly its transfers on a large cluster, over the number of ranks squared: what is cheap is tried
        first where time is short.
    sized
        Whether it decides by the size of the buffer, where that is known: functions of it take
        ``size_bytes``.
    given
        Options that were asked for, as names and values; see `find`.
    library
        The communication library whose schedule this is, such as ``"nccl"``; empty for all others. The first
        note of such a schedule, if it has any, says what the library chose on that cluster, such as its
        channels.
    title
        Words for the name of a library's algorithm in tables; by default those of `name`.
    yardstick
        Whether it is there to compare with and for nothing else: plans do not choose it unless it is named,
        comparisons show it where `weft.planning.library_rows` says, and nothing cuts its messages, because
        its schedule has them as the library sends them.
    is_own
        Whether it is the user's own: a wrong schedule is then shown as such, and is no bug of Weft's.
    max_work
        Operations that verifying its schedule may take, by estimate; None for any number.
    """

    name: str
    collectives: tuple[str, ...]
    summary: str
    cost: float = 2.0
    sized: bool = False
    given: tuple[tuple[str, Any], ...] = ()
    library: str = ""
    title: str = ""
    yardstick: bool = False
    is_own: bool = False
    max_work: float | None = None

    def label(self, schedule: Schedule) -> str:
        """Name for people: that of the registry, or for a library's schedule its words and what it chose.

        Examples
        --------
        >>> from weft.topology import load_topology
        >>> line = find("nccl_ring")
        >>> line.label(line.build(load_topology("dgx-h100:2"), "all_reduce"))
        'nccl ring (8 channels)'
        """
        if not self.library:
            return self.name
        words = self.title or self.name.replace("_", " ")
        return f"{words} ({schedule.notes[0]})" if schedule.notes else words

    @property
    def module(self) -> ModuleType:
        """Where its functions are."""
        return import_module(f"weft.algorithms.{self.name.partition(':')[0]}")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Keyword arguments of its functions, with types and defaults.

        Examples
        --------
        >>> list(find("multitree").options)
        ['trees_per_root', 'paper_order']
        """
        return find_options(self.module, self.collectives)

    def offers(self, topology: Topology, collective: str) -> bool:  # noqa: ARG002
        """Whether it has a collective; what depends on the topology is said by `build`."""
        return collective in self.collectives

    def looks_at_size(self, collective: str) -> bool:
        """Whether the schedule of a collective depends on the size of the buffer.

        Examples
        --------
        >>> find("gloo_ring").looks_at_size("all_reduce"), find("gloo_ring").looks_at_size("all_gather")
        (True, False)
        """
        return self.sized and "size_bytes" in find_options(self.module, (collective,))

    def build(
        self,
        topology: Topology,
        collective: str,
        root: int = 0,
        *,
        expected_bytes: int | None = None,
        **options: Any,
    ) -> Schedule:
        """Make the schedule of a collective on a topology.

        Parameters
        ----------
        topology
            The cluster.
        collective
            One of `collectives`.
        root
            For broadcast and reduce; other collectives have none.
        expected_bytes
            Size of the buffer, if it is known; those that are not `sized` do without it.
        options
            Further arguments of the algorithm's function, such as one of `variants`.

        Raises
        ------
        UnsupportedError
            If the algorithm does not have this collective, or does not apply to the topology; if the
            collective does not have an option that was given.

        Examples
        --------
        >>> from weft.topology import load_topology
        >>> find("ring").build(load_topology("ring:4"), "all_reduce").steps
        6
        """
        if collective not in self.collectives:
            others = [other.name for other in for_collective(collective)]
            instead = f"{collective} is offered by {', '.join(others)}" if others else None
            raise UnsupportedError(
                self.name, f"has no {collective}, only {', '.join(self.collectives)}", instead
            )
        module = self.module
        taken = find_options(module, (collective,))
        for name, value in self.given:
            if name not in taken:
                having = [other for other in self.collectives if name in find_options(module, (other,))]
                raise UnsupportedError(
                    self.name, f"{collective} has no option {name}", f"{', '.join(having)} has it"
                )
            options.setdefault(name, value)
        if collective in ROOTED:
            options["root"] = root
        if expected_bytes is not None and self.looks_at_size(collective):
            options.setdefault("size_bytes", expected_bytes)
        schedule: Schedule = getattr(module, collective)(topology, **options)
        return schedule

    def try_build(
        self, topology: Topology, collective: str, root: int = 0, **options: Any
    ) -> Schedule | Refusal:
        """Make the schedule of a collective, or say why there is none; parameters as for `build`.

        Raises
        ------
        ScheduleError
            If the algorithm is wrong: it made rows that are no schedule.

        Examples
        --------
        >>> from weft.topology import load_topology
        >>> find("swing").try_build(load_topology("ring:6"), "all_reduce")
        <Refusal algorithm='swing', reason='needs a power of two ranks, there are 6'>
        """
        try:
            return self.build(topology, collective, root, **options)
        except (UnsupportedError, LimitError, MemoryError) as error:
            return Refusal.of(self.name, error)
        except ScheduleError as error:
            raise ScheduleError(f"{self.name} made no schedule: {error}") from error
        except Exception as error:
            error.add_note(f"while {self.name} built {collective} on {topology.name}")
            raise

    def variants(self, collective: str) -> list[dict[str, Any]]:
        """Options worth a try besides the default, which comes first: the module's ``VARIANTS``, if any.

        A variant that the function of this collective does not take is left out. Where options were given
        there is nothing else to try.

        Examples
        --------
        >>> find("multitree").variants("all_gather")
        [{}, {'trees_per_root': 2}, {'paper_order': True}]
        >>> find("ring").variants("all_reduce")
        [{}]
        """
        if self.given:
            return [{}]
        module = self.module
        taken = set(find_options(module, (collective,)))
        return [
            {},
            *(dict(options) for options in getattr(module, "VARIANTS", ()) if taken.issuperset(options)),
        ]


_HALVES: Final = ("all_reduce", "reduce_scatter", "all_gather")
_TREES: Final = ("all_reduce", "broadcast", "reduce")
_RING: Final = (*_HALVES, "broadcast", "reduce")
_DOUBLING: Final = ("all_reduce", "all_gather")
_ALL: Final = (*_HALVES, "broadcast", "reduce", "all_to_all")

ALGORITHMS: Final[dict[str, Algorithm]] = {
    line.name: line
    for line in (
        Algorithm("ring", _RING, "one ring through all ranks; optimal volume"),
        Algorithm("bidirectional_ring", _HALVES, "two opposite rings, half the buffer each", 4.0),
        Algorithm(
            "double_binary_tree", _TREES, "two trees, the inner ranks of one the leaves of the other", 1.0
        ),
        Algorithm(
            "recursive_doubling", _DOUBLING, "all data to partners ever further away; fewest steps", 0.1
        ),
        Algorithm("halving_doubling", _HALVES, "halve data, double distance; few steps, optimal volume"),
        Algorithm("ring2d", ("all_reduce",), "rings along the rows and columns of a 2D grid", 0.25),
        Algorithm("bucket", _HALVES, "rings in every direction of a torus or mesh at once", 8.0),
        Algorithm("four_phase", ("all_reduce",), "inside packages, between them axis by axis, inside", 1.0),
        Algorithm("hierarchical", _TREES, "inside each group, between their leaders, inside each group", 0.1),
        Algorithm("blueconnect", _HALVES, "one ring stage per level of the network"),
        Algorithm("direct", _ALL, "every rank straight to every other"),
        Algorithm(
            "flexreduce", ("all_reduce",), "uneven portions for uneven hosts and links", 16.0, sized=True
        ),
        Algorithm(
            "forest", _RING, "trees that fill every link, packed into slots; nearest the proven limit", 16.0
        ),
        Algorithm("multitree", _HALVES, "one tree per rank, all grown together in free links"),
        Algorithm("hdrm", _HALVES, "halving-doubling on a BiGraph, without two flows on one link"),
        Algorithm("swing", _HALVES, "partners to and fro at growing distance; few steps on a torus", 8.0),
        Algorithm(
            "nccl_ring", _HALVES, "NCCL's rings: one per network interface of a box", 15.0, library="nccl"
        ),
        Algorithm(
            "nccl_tree",
            ("all_reduce",),
            "NCCL's trees: two over the boxes, a chain inside each, on every rail",
            0.5,
            library="nccl",
        ),
        Algorithm(
            "rccl_ring",
            _HALVES,
            "RCCL's rings through boxes of 8 GPUs that are joined one by one, such as MI300X",
            15.0,
            library="rccl",
        ),
        Algorithm(
            "gloo_ring",
            ("all_reduce", "all_gather"),
            "Gloo's ring: segments of at most 1 MiB, ranks in their order",
            4.0,
            sized=True,
            library="gloo",
            yardstick=True,
        ),
        Algorithm(
            "gloo_halving_doubling",
            ("all_reduce",),
            "Gloo's halving-doubling: binary blocks of ranks",
            library="gloo",
            title="gloo halving-doubling",
            yardstick=True,
        ),
        Algorithm(
            "open_mpi_choice",
            ("all_reduce", "all_gather"),
            "Open MPI's choice by number of ranks and size (coll/tuned)",
            sized=True,
            library="open mpi",
            title="open mpi",
            yardstick=True,
        ),
        Algorithm(
            "mpich_choice",
            (*_HALVES, "broadcast"),
            "MPICH's choice by number of ranks and size",
            sized=True,
            library="mpich",
            title="mpich",
            yardstick=True,
        ),
    )
}


def find(name: str) -> Algorithm:
    """Line of an algorithm of Weft's, by its name or by its name and options.

    `weft.algorithms.resolver` reads more: also functions and schedules of the user's own.

    Parameters
    ----------
    name
        A key of `ALGORITHMS`. Options follow a colon, as in ``multitree:paper_order=true,trees_per_root=2``:
        keyword arguments of the algorithm's functions, which are then called with them.

    Raises
    ------
    InputError
        If there is none of that name; says which are close. The same for options, and for values that are
        not of an option's type.

    Examples
    --------
    >>> find("bucket").collectives
    ('all_reduce', 'reduce_scatter', 'all_gather')
    >>> from weft.topology import load_topology
    >>> find("multitree:paper_order=true").build(load_topology("torus:4x4"), "all_gather").steps
    5
    """
    base, colon, text = name.partition(":")
    if base not in ALGORITHMS and base.lower().endswith(_FILE_ENDINGS):
        advice = "weft export writes the schedule of one's own, which schedule= takes"
        raise InputError(f"{printable(name)}: only a name of an algorithm can stand here; {advice}")
    line = look_up("algorithm", base, ALGORITHMS)
    if not colon:
        return line
    given = read_options(base, text, line.options)
    words = ",".join(f"{option}={format_value(value)}" for option, value in given.items())
    return replace(line, name=f"{base}:{words}", given=tuple(given.items()))


def for_collective(collective: str) -> list[Algorithm]:
    """Every algorithm that offers a collective, in the registry's order.

    Examples
    --------
    >>> [line.name for line in for_collective("all_to_all")]
    ['direct']
    """
    return [line for line in ALGORITHMS.values() if collective in line.collectives]
