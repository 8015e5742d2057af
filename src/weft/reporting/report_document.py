"""What a report shows: sections from plans, schedules, results and documents, in one dictionary for JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft import _core, limits
from weft.errors import FormatError, InputError
from weft.files import read_source, write_bytes
from weft.packets import PacketResult
from weft.planning import Comparison, Plan
from weft.planning.plan_file import decode_plan, is_plan
from weft.reporting import live_sections as live
from weft.reporting import result_forms as forms
from weft.reporting import result_sections as results
from weft.reporting.report_page import make_page
from weft.reporting.trace_timeline import is_trace, read_trace
from weft.schedule import Schedule
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
_MOST_SOURCES: Final = 64


@dataclass
class _Contents:
    """What was found in all sources."""

    compared: dict[tuple[str, str], list[forms.ComparedForm]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    benched: list[forms.BenchedForm] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)


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
    limits.check("sources of a report", len(sources), _MOST_SOURCES)
    contents = _Contents()
    for source in sources:
        _add(contents, source, size)
    sections = [*_compared(contents), *_benched(contents), *contents.sections]
    titles = list(dict.fromkeys(contents.titles))
    return {
        "version": VERSION,
        "title": title or (titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"),
        "made_by": f"weft {_core.version()}",
        "sections": sections,
    }


def _add(contents: _Contents, source: Source, size: str | int | None) -> None:
    """Find out what a source is, and add what it has to show."""
    match source:
        case str() | Path():
            _add(contents, _read(source, contents), size)
        case Plan():
            contents.plans.append(source)
            contents.sections += live.plan_sections(source, size)
            contents.titles.append(f"{source.collective} on {source.topology.name}")
        case Schedule():
            contents.sections += live.schedule_sections(source, size)
            contents.titles.append(f"{source.algorithm} {source.collective} on {source.topology.name}")
        case Topology():
            contents.sections += live.topology_sections(source)
            contents.titles.append(source.name)
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
        case {"kind": "timeline"}:
            contents.sections.append(source)
        case dict():
            _add_document(contents, source, "document")
        case _:
            raise InputError(
                f"a report cannot show {type(source).__name__}; see docs/report.md for what it can"
            )


def _read(source: str | Path, contents: _Contents) -> Plan | Schedule | dict[str, Any]:
    name, data = read_source(source, limits.MAX_REPORT_SOURCE_BYTES)
    if is_plan(data):
        return decode_plan(data, name)
    if is_trace(data):
        contents.titles.append(Path(name).name)
        return read_trace(data, name)
    if data.lstrip()[:1] != b"{":
        return decode_schedule(data, name)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(name, f"is neither JSON nor a plan, schedule or trace: {error}") from error
    if "transfers" in found and isinstance(found["transfers"], list):
        return decode_schedule(data, name)
    forms.read_form(found, name)  # so that a complaint names the file
    return dict(found)


def _add_document(contents: _Contents, document: dict[str, Any], source: str) -> None:
    """Add what a command printed with ``--json``."""
    found = forms.read_form(document, source)
    match found:
        case forms.ComparedSizesForm() | forms.ComparedForm():
            for one in [found] if isinstance(found, forms.ComparedForm) else found.sizes:
                contents.compared.setdefault((one.topology, one.collective), []).append(one)
                contents.titles.append(f"{one.collective} on {one.topology}")
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


def _compared(contents: _Contents) -> list[Section]:
    """Comparisons of one topology and collective together, with the picture of the best one."""
    sections: list[Section] = []
    for (name, collective), found in contents.compared.items():
        own = [
            one for one in contents.comparisons if (one.topology.name, one.collective) == (name, collective)
        ]
        drawn = live.comparison_fabric(own[-1]) if own else _bare_fabric(name)
        charts = results.comparison_sections(found)
        sections += [*charts[:1], *drawn, *charts[1:]]
    return sections


def _bare_fabric(name: str) -> list[Section]:
    topology = results.named_topology(name)
    return [] if topology is None else live.topology_sections(topology)


def _benched(contents: _Contents) -> list[Section]:
    """Measurements, beside what a plan or comparison of as many ranks predicts for their sizes."""
    sections: list[Section] = []
    for bench in contents.benched:
        predicted: dict[int, float] = {}
        collectives = {row.collective for row in bench.rows}
        for (name, collective), found in contents.compared.items():
            topology = results.named_topology(name)
            if collective in collectives and topology is not None and topology.ranks == bench.ranks:
                best = {
                    one.size_bytes: min((r.seconds for r in one.results if r.seconds), default=0.0)
                    for one in found
                }
                predicted |= {size: seconds for size, seconds in best.items() if seconds}
        for plan in contents.plans:
            if plan.collective in collectives and plan.topology.ranks == bench.ranks:
                predicted |= live.predict(plan, [row.size_bytes for row in bench.rows])
        sections += results.bench_sections(bench, predicted)
    return sections
