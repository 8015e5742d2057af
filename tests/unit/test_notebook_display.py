"""How results show themselves: one short line, a bounded page of escaped text, and tables of pandas."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import weft
from weft.notebook_display import LONGEST_REPR, MOST_ROWS
from weft.packets import make_tables, simulate_tables
from weft.topology import Topology

HOSTILE = "<script>alert(1)</script>&\"'" + "x" * 300


def rename(topology: Topology) -> Topology:
    """The same network under a name that somebody else chose."""
    return replace(topology, name=HOSTILE)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One of each public result, on a network with a hostile name."""
    topology = rename(weft.load_topology("ring:4"))
    comparison = weft.compare(topology, "1MiB", algorithms=["ring", "bidirectional_ring"])
    plan = weft.plan(topology, "1MiB", algorithms=["ring"])
    choice = plan.choose("1MiB")
    schedule = replace(choice.schedule, algorithm=HOSTILE)
    training = weft.train("resnet50", topology)
    return {
        "topology": topology,
        "comparison": comparison,
        "row": comparison.results[0],
        "bound": comparison.bound,
        "plan": plan,
        "point": plan.points[0],
        "planned": plan.schedules[0],
        "choice": choice,
        "schedule": schedule,
        "simulation": weft.simulate(schedule, "1MiB"),
        "recorded": weft.simulate(schedule, "1MiB", record=True).timeline,
        "report": weft.verify(schedule),
        "packets": simulate_tables(make_tables(schedule, "64KiB")),
        "training": training,
        "job": training.job,
        "run": training.run,
        "flow": training.run.flow,
        "iteration": training.run.timeline,
        "cluster": training.cluster,
        "workload": training.workload,
        "device": training.device,
    }


SHOWN = ("topology", "comparison", "plan", "schedule", "simulation", "training")


def test_the_repr_of_every_result_is_one_short_line(results: dict[str, Any]) -> None:
    lengths = {name: len(repr(result)) for name, result in results.items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_REPR} == {}
    assert not any("\n" in repr(result) for result in results.values())


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_shows_a_page_in_which_hostile_names_stay_text(results: dict[str, Any], name: str) -> None:
    page = results[name]._repr_html_()
    root = ET.fromstring(page)
    assert "script" not in {node.tag.rpartition("}")[2] for node in root.iter()}
    assert "<script" not in page
    assert "alert(1)" in page
    assert len(page) < 60_000


@pytest.mark.parametrize("spec", ["torus:32x32", "rails:128x8", "fullmesh:150", "torus:64x64"])
def test_the_page_of_a_large_topology_is_bounded(spec: str) -> None:
    assert len(weft.load_topology(spec)._repr_html_()) < 500_000


def test_the_page_of_a_long_schedule_has_its_first_transfers_alone() -> None:
    schedule = weft.algorithms.registry.find("ring").build(weft.load_topology("ring:64"), "all_reduce")
    page = schedule._repr_html_()
    assert len(page) < 10_000
    assert "more rows" in page
    assert page.count("<tr>") <= MOST_ROWS + 10


def test_rows_go_to_pandas(results: dict[str, Any]) -> None:
    comparison, plan, run = results["comparison"], results["plan"], results["simulation"]
    assert list(comparison.to_pandas().algorithm) == [row.algorithm for row in comparison.results]
    assert list(plan.to_pandas().seconds) == [point.seconds for point in plan.points]
    links = run.to_pandas()
    assert len(links) == len(results["topology"].to_pandas()) == 8
    assert np.allclose(links.busy_s, run.link_busy_ps / 1e12)
    assert links.utilisation.max() == pytest.approx(run.utilisation(run.busiest_link))
    transfers = results["schedule"].to_pandas()
    assert len(transfers) == results["schedule"].transfers
    assert set(transfers.op) == {"copy", "reduce"}
    spans = results["training"].to_pandas()
    computed = spans[spans.kind.isin(["forward", "backward"])]
    assert (computed.end_s - computed.start_s).sum() == pytest.approx(results["training"].run.computing_s)
    assert computed.layer.iloc[0] == results["training"].layers[0].name


def test_a_table_of_pandas_is_its_own() -> None:
    topology = weft.load_topology("ring:4")
    links = topology.to_pandas()
    links.loc[0, "bandwidth"] = 1
    assert int(topology.bandwidth[0]) == 25_000_000_000


def test_without_pandas_one_line_names_the_package() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import weft\n"
        "try:\n    weft.load_topology('ring:4').to_pandas()\n"
        "except weft.InputError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    expected = "Topology.to_pandas needs pandas, which is not installed; pip install pandas\n"
    assert done.stdout == expected
