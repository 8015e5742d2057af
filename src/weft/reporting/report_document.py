"""What a report shows: sections from plans, schedules, results and documents, in one dictionary for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft import _core, limits
from weft.errors import FormatError, InputError
from weft.files import read_source, write_bytes
from weft.packets import PacketResult
from weft.planning import Comparison, Plan
from weft.planning.plan_file import decode_plan, is_plan
from weft.reporting import check_forms as checked
from weft.reporting import check_sections as checks
from weft.reporting import live_sections as live
from weft.reporting import result_forms as forms
from weft.reporting import result_sections as results
from weft.reporting.fabric_picture import fabric_section
from weft.reporting.report_page import make_page
from weft.reporting.section_kinds import MOST_TITLE, cut, words_section
from weft.reporting.trace_timeline import is_trace, read_trace
from weft.schedule import Schedule
from weft.schedule.codec import MAGIC as SCHEDULE_MAGIC
from weft.schedule.codec import decode_schedule
from weft.simulation import SimulationResult
from weft.topology import Topology
from weft.training.job import TrainingResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.reporting.section_kinds import Section

Source = (
    str | Path | dict[str, Any] | Plan | Schedule | Topology | Comparison | SimulationResult | PacketResult
    | TrainingResult
)  # fmt: skip
VERSION: Final = 1
_OTHER_FILES: Final = "a file with a topology is drawn by weft topology FILE --report PAGE"
_MOST_NAMED: Final = 12
"""Clusters that are known by their name only and built for one page."""

_TOO_MANY: Final = f"A page builds {_MOST_NAMED} clusters that it knows by their name only."


@dataclass
class _Contents:
    """What was found in all sources."""

    compared: dict[tuple[str, str], list[forms.ComparedForm]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    benched: list[forms.BenchedForm] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    named: dict[str, Topology | None] = field(default_factory=dict)

    def find_named(self, name: str) -> Topology | None:
        """The topology that a name describes, built once; None if it describes none, or after too many."""
        if name not in self.named and sum(one is not None for one in self.named.values()) < _MOST_NAMED:
            self.named[name] = results.named_topology(name)
        return self.named.get(name)

    def find_compared(self, name: str, collective: str) -> list[Comparison]:
        """Comparisons that are there themselves, and not only as documents."""
        return [one for one in self.comparisons if (one.topology.name, one.collective) == (name, collective)]


def report(
    *sources: Source,
    output: str | Path | None = None,
    size: str | int | None = None,
    title: str | None = None,
) -> str:
    """Write plans, results and traces as one page of HTML that needs no network.

    Parameters
    ----------
    sources
        Plan files, schedule files, what commands printed with ``--json`` and Chrome traces, by the names of
        their files; or plans, schedules, topologies and results themselves; or documents as dictionaries.
    output
        The file that the page is written to; None writes no file.
    size
        Buffer size at which schedules and plans run in the picture; by default 64 MiB, and a plan's last one.
    title
        The title of the page; by default it says what is shown.

    Returns
    -------
    str
        The page.

    Raises
    ------
    InputError
        If there is nothing to show, or a source cannot be read.

    Examples
    --------
    >>> import weft
    >>> page = weft.report(weft.compare("ring:4", "1MiB", algorithms=["ring"]))
    >>> page.startswith("<!doctype html>")
    True
    """
    page = make_page(make_document(sources, size=size, title=title))
    if output is not None:
        write_bytes(output, page.encode())
    return page


def make_document(
    sources: Sequence[Source], *, size: str | int | None = None, title: str | None = None
) -> dict[str, Any]:
    """Make the document that a page shows; parameters and errors as for `report`."""
    if not sources:
        raise InputError("a report needs something to show; give a plan, a result or a trace")
    limits.check("sources of a report", len(sources), limits.MAX_REPORT_SOURCES)
    contents = _Contents()
    for source in sources:
        _add(contents, source, size)
    sections = [*_compared(contents), *_benched(contents), *contents.sections]
    # A cluster that is drawn beside a result is not what the page is about.
    titles = list(dict.fromkeys(contents.titles or contents.clusters))
    return {
        "version": VERSION,
        "title": cut(title or _join(titles), MOST_TITLE),
        "made_by": f"weft {_core.version()}",
        "sections": sections,
    }


def _join(titles: Sequence[str]) -> str:
    first = cut(titles[0], MOST_TITLE - 20)
    return first if len(titles) == 1 else f"{first} and {len(titles) - 1:,} more"


def _add(contents: _Contents, source: Source, size: str | int | None) -> None:
    """Find out what a source is, and add what it has to show."""
    match source:
        case str() | Path():
            _add_file(contents, source, size)
        case Plan():
            contents.plans.append(source)
            contents.sections += live.plan_sections(source, size)
            contents.titles.append(f"{source.collective} on {source.topology.name}")
        case Schedule():
            contents.sections += live.schedule_sections(source, size)
            contents.titles.append(f"{source.algorithm} {source.collective} on {source.topology.name}")
        case Topology():
            contents.sections += live.topology_sections(source)
            contents.clusters.append(source.name)
        case Comparison():
            contents.comparisons.append(source)
            _add_document(contents, source.to_dict(), "comparison")
        case SimulationResult():
            contents.sections += live.run_sections(source)
            contents.titles.append(f"{source.schedule.algorithm} on {source.schedule.topology.name}")
        case PacketResult():
            contents.sections += live.packet_run_sections(source)
            contents.titles.append(f"{source.tables.algorithm} on {source.tables.topology.name}")
        case TrainingResult():
            contents.sections += live.training_run_sections(source)
            contents.titles.append(f"{source.workload.name} on {source.cluster.topology.name}")
        case dict():
            _add_document(contents, source, "document")
        case _:
            raise InputError(
                f"a report cannot show {type(source).__name__}; see docs/report.md for what it can"
            )


def _add_file(contents: _Contents, source: str | Path, size: str | int | None) -> None:
    name, data = read_source(source, limits.MAX_REPORT_SOURCE_BYTES)
    if is_plan(data):
        _add(contents, decode_plan(data, name), size)
    elif is_trace(data):
        contents.titles.append(Path(name).name)
        contents.sections.append(read_trace(data, name))
    elif data.startswith(SCHEDULE_MAGIC[:5]):
        _add(contents, decode_schedule(data, name), size)
    elif data.lstrip()[:1] != b"{":
        raise FormatError(name, f"is no plan, schedule, result or trace; {_OTHER_FILES}")
    else:
        found = _decode(data, name)
        if isinstance(found.get("transfers"), list):
            _add(contents, decode_schedule(data, name), size)
        else:
            _add_document(contents, found, name)


def _decode(data: bytes, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(name, f"is neither JSON nor a plan, schedule or trace: {error}") from error


def _add_document(contents: _Contents, document: dict[str, Any], source: str) -> None:
    """Add what a command printed with ``--json``."""
    found = forms.read_form(document, source)
    match found:
        case forms.ComparedSizesForm() | forms.ComparedForm():
            for one in [found] if isinstance(found, forms.ComparedForm) else found.sizes:
                contents.compared.setdefault((one.topology, one.collective), []).append(one)
                contents.titles.append(f"{one.collective} on {one.topology}")
            number = sum(map(len, contents.compared.values()))
            limits.check("comparisons of a report", number, limits.MAX_REPORT_COMPARISONS)
        case forms.BenchedForm():
            contents.benched.append(found)
            contents.titles.append(f"measured with {found.ranks} ranks")
        case forms.PlanForm():
            contents.sections += results.plan_sections(found)
            contents.titles.append(f"{found.collective} on {found.topology}")
        case forms.SimulatedForm():
            contents.sections += results.simulation_sections(found)
            contents.titles.append(f"{found.algorithm} on {found.topology}")
        case forms.PacketsForm():
            contents.sections += results.packet_sections(found)
            contents.titles.append(f"{found.algorithm} on {found.topology}")
        case forms.TrainedForm():
            contents.sections += results.training_sections(found)
            contents.titles.append(f"{found.model} on {found.topology}")
        case forms.SweptForm():
            contents.sections += results.sweep_sections(found)
            contents.titles.append("training jobs")
        case forms.LabForm():
            contents.sections += results.lab_sections(found)
            contents.titles.append(f"measured on {found.topology}")
        case forms.ClaimsForm():
            contents.sections += results.claims_sections(found)
            contents.titles.append("claims of papers")
        case forms.PaperForm():
            contents.sections += results.paper_sections(found)
            contents.titles.append(found.title)
        case _:
            _add_checked(contents, found)


def _add_checked(contents: _Contents, found: Any) -> None:
    """Add what a command found out about something that it checked."""
    match found:
        case checked.CheckedForm():
            contents.sections += checks.verdict_sections(found)
            contents.titles.append(f"{found.schedule}: {'correct' if found.verified else 'WRONG'}")
        case checked.CheckedPlanForm():
            contents.sections += checks.plan_verdict_sections(found)
            contents.titles.append(f"verified: {found.plan}")
        case checked.SoakedForm():
            contents.sections += checks.soak_sections(found)
            contents.titles.append("soak test")
        case checked.ExplainedForm():
            contents.sections += checks.explained_sections(found)
            contents.titles.append(f"job {found.job}")
        case checked.ProbedForm():
            contents.sections += checks.probe_sections(found)
            contents.titles.append(found.topology)


def _compared(contents: _Contents) -> list[Section]:
    """Comparisons of one topology and collective together, with the picture of the best one."""
    sections: list[Section] = []
    for (name, collective), found in contents.compared.items():
        own = contents.find_compared(name, collective)
        drawn = live.comparison_fabric(own[-1]) if own else _bare_fabric(contents, name)
        charts = results.comparison_sections(found)
        sections += [*charts[:1], *drawn, *charts[1:]]
    return sections


def _bare_fabric(contents: _Contents, name: str) -> list[Section]:
    topology = contents.find_named(name)
    if topology is not None:
        return [fabric_section(topology, is_named=True)]
    if name in contents.named:
        return []
    return [words_section("Fabric", [f"{_TOO_MANY} This is not one of them."])]


def _benched(contents: _Contents) -> list[Section]:
    """Measurements, beside what a plan or comparison of as many ranks predicts for their sizes."""
    sections: list[Section] = []
    for bench in contents.benched:
        predicted: dict[int, float] = {}
        note = ""
        collectives = {row.collective for row in bench.rows}
        for (name, collective), found in contents.compared.items():
            if collective not in collectives:
                continue
            own = contents.find_compared(name, collective)
            topology = own[0].topology if own else contents.find_named(name)
            if not own and name not in contents.named:
                note = f"{_TOO_MANY} Comparisons on others are not shown as predictions."
            if topology is not None and topology.ranks == bench.ranks:
                best = {
                    one.size_bytes: min((r.seconds for r in one.results if r.seconds), default=0.0)
                    for one in found
                }
                predicted |= {size: seconds for size, seconds in best.items() if seconds}
        for plan in contents.plans:
            if plan.collective in collectives and plan.topology.ranks == bench.ranks:
                predicted |= live.predict(plan, [row.size_bytes for row in bench.rows])
        sections += results.bench_sections(bench, predicted, note)
    return sections
