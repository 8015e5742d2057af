"""Types of what requests to the studio carry and what it answers: they check bodies and describe the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from weft import limits
from weft.collective_names import Collective

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.MAX_SPEC_CHARACTERS)]
_Quantity = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
LONGEST_S = 60.0
"""Seconds that one comparison may ask for."""


class UploadedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a topology file, in any format that ``weft topology`` reads."""

    name: Name
    text: str


class ClusterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster: a spec such as ``torus:8x8``, or an uploaded file; without either, the command line's."""

    topology: Name | None = None
    file: UploadedFile | None = None


class EditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the cable, or all parallel cables, between two nodes.

    ``slow`` takes a bandwidth such as ``10GB/s`` or a factor, ``add`` a bandwidth and a latency such as
    ``1us``.
    """

    action: Literal["cut", "slow", "add"]
    a: Name
    b: Name
    bandwidth: _Quantity | None = None
    factor: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    latency: _Quantity | None = None


class CompareBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to compare: a size such as ``64MiB``, a collective, and names of algorithms; no names mean all."""

    size: _Quantity = "64MiB"
    collective: Collective = "all_reduce"
    algorithms: Annotated[list[Name], msgspec.Meta(max_length=limits.MAX_STUDIO_ALGORITHMS)] = []
    time_limit: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)] = 20.0


class ClusterState(msgspec.Struct, frozen=True):
    """A cluster after its edits; ``base`` is its name before them.

    ``fabric`` is a section of a report (docs/report.md). ``line_ends`` has the two nodes of each line that it
    draws, and is null where a line stands for several cables. ``node_names`` lists the first nodes.
    """

    session: str
    name: str
    base: str
    ranks: int
    switches: int
    links: int
    edits: list[str]
    fabric: dict[str, Any]
    line_ends: list[tuple[str, str]] | None
    node_names: list[str]


class StudioChoices(msgspec.Struct, frozen=True):
    """What can be chosen: algorithms by collective, and bounds of what the studio takes."""

    algorithms: dict[str, list[str]]
    default_topology: str
    version: str
    limits: dict[str, int]


class StudioCounts(msgspec.Struct, frozen=True):
    """Comparisons since the start: those accepted are finished, cancelled, failed, running or waiting."""

    accepted: int
    finished: int
    cancelled: int
    failed: int
    running: int
    waiting: int
    refused: int
    sessions: int


class ComparisonEvent(msgspec.Struct, frozen=True):
    """One line of a comparison's answer.

    ``accepted`` is the first; ``rows`` follows each algorithm, with ``result`` as ``weft compare --json``
    prints it and ``sections`` for a page; the last is ``done`` (with ``result`` and a whole ``document``),
    ``cancelled`` (with ``reason``) or ``error`` (with ``error`` and ``what_to_do``).
    """

    event: Literal["accepted", "rows", "done", "cancelled", "error"]
    comparison: int
    tried: int | None = None
    of: int | None = None
    result: dict[str, Any] | None = None
    sections: list[dict[str, Any]] | None = None
    document: dict[str, Any] | None = None
    reason: str | None = None
    error: str | None = None
    what_to_do: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """Every answer that is no success."""

    error: str
    what_to_do: str


class StudioRefusal(Exception):
    """A request that is answered with a problem.

    Parameters
    ----------
    status
        The status of the answer.
    error, what_to_do
        A text that says what is wrong, and one that says what helps.
    """

    def __init__(self, status: int, error: str, what_to_do: str) -> None:
        super().__init__(error)
        self.status = status
        self.problem = Problem(error, what_to_do)
