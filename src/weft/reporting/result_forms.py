"""Forms of the documents that commands print with ``--json``, as far as a report shows them.

Fields that a report does not need are not read. A document that has the keys of a form but not its types is
refused with the place.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from weft.errors import FormatError
from weft.reporting.check_forms import CheckedForm, CheckedPlanForm, ExplainedForm, ProbedForm, SoakedForm
from weft.reporting.form_numbers import Count, Number, Seconds

_Form = TypeVar("_Form")


class ComparedRow(msgspec.Struct, frozen=True):
    """One algorithm of ``weft compare --json``."""

    algorithm: str
    verified: bool
    seconds: Seconds | None = None
    fraction_of_bound: Number | None = None
    algbw_GBps: Number | None = None
    busbw_GBps: Number | None = None
    steps: Count = 0
    transfers: Count = 0
    segment_bytes: Count | None = None
    label: str = ""


class RefusedRow(msgspec.Struct, frozen=True):
    """One algorithm that was left out."""

    algorithm: str
    reason: str


class EstimateForm(msgspec.Struct, frozen=True):
    """What NCCL's own cost model expects, in words."""

    text: str


class ComparedForm(msgspec.Struct, frozen=True):
    """``weft compare --json`` at one size."""

    topology: str
    size_bytes: Count
    bound_seconds: Seconds
    results: list[ComparedRow]
    skipped: list[RefusedRow] = []
    collective: str = "all_reduce"
    bound_kind: str = ""
    bound_explanation: str = ""
    bound_condition: str | None = None
    nccl_estimate: EstimateForm | None = None


class ComparedSizesForm(msgspec.Struct, frozen=True):
    """``weft compare --json`` without ``--size``."""

    sizes: list[ComparedForm]


class PlanPointRow(msgspec.Struct, frozen=True):
    """One size of ``weft plan --json``."""

    size_bytes: Count
    seconds: Seconds
    bound_seconds: Seconds
    algorithm: str
    fraction_of_bound: Number
    variant: str = ""
    segment_bytes: Count | None = None
    busiest_link: str = ""
    busy: Number = 0.0
    runner_up: str | None = None
    runner_up_seconds: Seconds | None = None
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

    src: Count
    dst: Count
    chunk: Count
    step: Count
    start_ps: Count
    end_ps: Count
    waited_for: str
    links: tuple[int, ...] = ()


class SimulatedForm(msgspec.Struct, frozen=True):
    """``weft simulate --json``."""

    topology: str
    collective: str
    algorithm: str
    size_bytes: Count
    seconds: Seconds
    time_ps: Count
    link_busy_ps: list[Count]
    critical_path: list[PathRow]
    algbw_GBps: Number = 0.0
    busbw_GBps: Number = 0.0
    steps: Count = 0
    transfers: Count = 0
    segment_bytes: Count | None = None
    bound_seconds: Seconds | None = None
    bound_kind: str | None = None
    bound_condition: str | None = None
    bound_explanation: str = ""
    fraction_of_bound: Number | None = None
    verified: bool | None = None


class PacketsForm(msgspec.Struct, frozen=True):
    """``weft packets --json``."""

    topology: str
    collective: str
    algorithm: str
    size_bytes: Count
    hardware: str
    seconds: Seconds
    time_ps: Count
    link_busy_ps: list[Count]
    flits: Count
    cycles: Count = 0
    packets: Count = 0
    messages: Count = 0
    algbw_GBps: Number = 0.0
    head_overhead: Number = 0.0
    flow_control: str = ""
    detail: str = ""


class TrainedForm(msgspec.Struct, frozen=True):
    """``weft train --json``."""

    topology: str
    ranks: Count
    model: str
    device: str
    policy: str
    seconds: Seconds
    computing_s: Seconds
    exposed_s: Seconds
    communication_s: Seconds
    lines: dict[str, Seconds]
    samples_per_s: Number | None = None
    bound_condition: str = ""
    reason: str = ""
    endpoint: str = ""
    batch: Count = 0
    layers: Count = 0
    parameter_bytes: Count = 0
    algorithms: dict[str, list[str]] = {}


class SweptForm(msgspec.Struct, frozen=True):
    """``weft train --sweep --json``."""

    results: list[dict[str, Any]]


class BenchedRow(msgspec.Struct, frozen=True):
    """One size of ``weft bench --json``."""

    collective: str
    ranks: Count
    size_bytes: Count
    contestants: dict[str, dict[str, Any]]
    bound: dict[str, Any] | None = None
    dtype: str = ""


class BenchedForm(msgspec.Struct, frozen=True):
    """``weft bench --json``."""

    ranks: Count
    rows: list[BenchedRow]
    versions: dict[str, dict[str, Any]]
    machine: str = ""
    rounds: Count = 0


class LabRow(msgspec.Struct, frozen=True):
    """One runtime of ``weft lab bench --json``."""

    name: str
    seconds: list[Seconds]
    median_seconds: Seconds
    predicted_seconds: Seconds | None = None
    deviation: Number | None = None
    algorithm: str | None = None


class LabForm(msgspec.Struct, frozen=True):
    """``weft lab bench --json``."""

    topology: str
    ranks: Count
    size_bytes: Count
    rounds: Count
    results: list[LabRow]


class ClaimForm(msgspec.Struct, frozen=True):
    """One claim of ``weft reproduce --json``."""

    paper: str
    id: str
    claim: str
    verdict: str
    paper_value: Number | None = None
    ours: Number | None = None
    deviation: Number | None = None
    why: str = ""


class ClaimsForm(msgspec.Struct, frozen=True):
    """``weft reproduce --json``."""

    claims: list[ClaimForm]


class PaperRowForm(msgspec.Struct, frozen=True):
    """One row of ``weft reproduce PAPER --json``."""

    claim: str
    setup: str = ""
    paper: Number | None = None
    ours: Number | None = None
    unit: str = ""
    deviation: Number | None = None
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
    (frozenset({"schedule", "checks"}), CheckedForm),
    (frozenset({"plan", "schedules"}), CheckedPlanForm),
    (frozenset({"operations", "growth", "failure"}), SoakedForm),
    (frozenset({"job", "states", "findings"}), ExplainedForm),
    (frozenset({"topology", "links", "rounds"}), ProbedForm),
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
        known = (
            "compare, plan, simulate, packets, train, bench, lab bench, reproduce, probe, verify, soak or "
            "explain"
        )
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
