"""Forms of the documents that commands print with ``--json``, as far as a report shows them.

Fields that a report does not need are not read. A document that has the keys of a form but not its types is
refused with the place.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from weft.errors import FormatError

_Form = TypeVar("_Form")


class ComparedRow(msgspec.Struct, frozen=True):
    """One algorithm of ``weft compare --json``."""

    algorithm: str
    verified: bool
    seconds: float | None = None
    fraction_of_bound: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    steps: int = 0
    transfers: int = 0
    segment_bytes: int | None = None
    label: str = ""


class RefusedRow(msgspec.Struct, frozen=True):
    """One algorithm that was left out."""

    algorithm: str
    reason: str


class ComparedForm(msgspec.Struct, frozen=True):
    """``weft compare --json`` at one size."""

    topology: str
    size_bytes: int
    bound_seconds: float
    results: list[ComparedRow]
    skipped: list[RefusedRow] = []
    collective: str = "all_reduce"
    bound_kind: str = ""
    bound_explanation: str = ""
    bound_condition: str | None = None


class ComparedSizesForm(msgspec.Struct, frozen=True):
    """``weft compare --json`` without ``--size``."""

    sizes: list[ComparedForm]


class PlanPointRow(msgspec.Struct, frozen=True):
    """One size of ``weft plan --json``."""

    size_bytes: int
    seconds: float
    bound_seconds: float
    algorithm: str
    fraction_of_bound: float
    variant: str = ""
    segment_bytes: int | None = None
    busiest_link: str = ""
    busy: float = 0.0
    runner_up: str | None = None
    runner_up_seconds: float | None = None
    runner_up_simulated: bool = True
    bound_condition: str | None = None


class PlanForm(msgspec.Struct, frozen=True):
    """``weft plan --json``."""

    topology: str
    collective: str
    points: list[PlanPointRow]
    ranges: list[dict[str, Any]]
    skipped: list[RefusedRow] = []


class PathRow(msgspec.Struct, frozen=True):
    """One stretch of the critical path of ``weft simulate --json``."""

    src: int
    dst: int
    chunk: int
    step: int
    start_ps: int
    end_ps: int
    waited_for: str


class SimulatedForm(msgspec.Struct, frozen=True):
    """``weft simulate --json``."""

    topology: str
    collective: str
    algorithm: str
    size_bytes: int
    seconds: float
    time_ps: int
    link_busy_ps: list[int]
    critical_path: list[PathRow]
    algbw_GBps: float = 0.0
    busbw_GBps: float = 0.0
    steps: int = 0
    transfers: int = 0
    segment_bytes: int | None = None
    bound_seconds: float | None = None
    bound_condition: str | None = None
    fraction_of_bound: float | None = None
    verified: bool | None = None


class PacketsForm(msgspec.Struct, frozen=True):
    """``weft packets --json``."""

    topology: str
    collective: str
    algorithm: str
    size_bytes: int
    hardware: str
    seconds: float
    time_ps: int
    link_busy_ps: list[int]
    flits: int
    cycles: int = 0
    packets: int = 0
    messages: int = 0
    algbw_GBps: float = 0.0
    head_overhead: float = 0.0
    flow_control: str = ""
    detail: str = ""


class TrainedForm(msgspec.Struct, frozen=True):
    """``weft train --json``."""

    topology: str
    ranks: int
    model: str
    device: str
    policy: str
    seconds: float
    computing_s: float
    exposed_s: float
    communication_s: float
    lines: dict[str, float]
    samples_per_s: float | None = None
    bound_condition: str = ""
    reason: str = ""
    endpoint: str = ""
    batch: int = 0
    layers: int = 0
    parameter_bytes: int = 0
    algorithms: dict[str, list[str]] = {}


class SweptForm(msgspec.Struct, frozen=True):
    """``weft train --sweep --json``."""

    results: list[dict[str, Any]]


class BenchedRow(msgspec.Struct, frozen=True):
    """One size of ``weft bench --json``."""

    collective: str
    ranks: int
    size_bytes: int
    contestants: dict[str, dict[str, Any]]
    bound: dict[str, Any] | None = None
    dtype: str = ""


class BenchedForm(msgspec.Struct, frozen=True):
    """``weft bench --json``."""

    ranks: int
    rows: list[BenchedRow]
    versions: dict[str, dict[str, Any]]
    machine: str = ""
    rounds: int = 0


class LabRow(msgspec.Struct, frozen=True):
    """One runtime of ``weft lab bench --json``."""

    name: str
    seconds: list[float]
    median_seconds: float
    predicted_seconds: float | None = None
    deviation: float | None = None
    algorithm: str | None = None


class LabForm(msgspec.Struct, frozen=True):
    """``weft lab bench --json``."""

    topology: str
    ranks: int
    size_bytes: int
    rounds: int
    results: list[LabRow]


class ClaimForm(msgspec.Struct, frozen=True):
    """One claim of ``weft reproduce --json``."""

    paper: str
    id: str
    claim: str
    verdict: str
    paper_value: float | None = None
    ours: float | None = None
    deviation: float | None = None
    why: str = ""


class ClaimsForm(msgspec.Struct, frozen=True):
    """``weft reproduce --json``."""

    claims: list[ClaimForm]


class PaperRowForm(msgspec.Struct, frozen=True):
    """One row of ``weft reproduce PAPER --json``."""

    claim: str
    setup: str = ""
    paper: float | None = None
    ours: float | None = None
    unit: str = ""
    deviation: float | None = None
    why: str = ""


class PaperForm(msgspec.Struct, frozen=True):
    """``weft reproduce PAPER --json``."""

    paper: str
    title: str
    rows: list[PaperRowForm]
    assumptions: list[str]
    reference: str = ""


FORMS: Final[tuple[tuple[frozenset[str], type[Any]], ...]] = (
    (frozenset({"sizes"}), ComparedSizesForm),
    (frozenset({"results", "bound_seconds"}), ComparedForm),
    (frozenset({"ranges", "points"}), PlanForm),
    (frozenset({"critical_path", "link_busy_ps"}), SimulatedForm),
    (frozenset({"hardware", "flits"}), PacketsForm),
    (frozenset({"model", "policy", "exposed_s"}), TrainedForm),
    (frozenset({"rows", "versions"}), BenchedForm),
    (frozenset({"results", "rounds"}), LabForm),
    (frozenset({"claims"}), ClaimsForm),
    (frozenset({"paper", "assumptions", "rows"}), PaperForm),
    (frozenset({"results"}), SweptForm),
)
"""Keys that tell a document, and its form; the first that fits."""


def read_form(document: dict[str, Any], source: str) -> Any:
    """Find the form of a document and check it.

    Raises
    ------
    FormatError
        If it is none of those that a report shows, or a field has the wrong type.
    """
    keys = set(document)
    form = next((form for needed, form in FORMS if needed <= keys), None)
    if form is None:
        known = "compare, plan, simulate, packets, train, bench, lab bench or reproduce"
        raise FormatError(
            source, f"is not a result that a report shows; give what {known} printed with --json"
        )
    return convert(document, form, source)


def convert(document: Any, form: type[_Form], source: str) -> _Form:
    """Check a document against a form."""
    try:
        return msgspec.convert(document, form, strict=True)
    except msgspec.ValidationError as error:
        raise FormatError(source, str(error)) from error
