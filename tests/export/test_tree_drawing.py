"""Pictures of trees: a network for each step, every link of the chunk's way in it, and bounded sizes."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from weft.algorithms import multitree, ring
from weft.errors import LimitError, ScheduleError
from weft.export import draw_trees
from weft.schedule import Schedule
from weft.topology import load_topology

SVG = "{http://www.w3.org/2000/svg}"


def networks(picture: str) -> list[ET.Element]:
    root = ET.fromstring(picture)
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "network"]


def shapes(network: ET.Element, kind: str) -> list[ET.Element]:
    return [shape for shape in network.iter() if shape.get("class") == kind]


def steps_of(schedule: Schedule, chunk: int) -> list[int]:
    mine = schedule.chunk == chunk
    return [int((schedule.step[mine] == step).sum()) for step in range(schedule.steps)]


@pytest.mark.parametrize("paper_order", [False, True])
def test_every_step_of_every_chunk_has_its_own_network(paper_order: bool) -> None:
    schedule = multitree.all_gather(load_topology("torus:4x4"), paper_order=paper_order)
    found = networks(draw_trees(schedule, [0, 5]))
    each = schedule.steps + 1
    assert len(found) == 2 * each
    for place, chunk in enumerate((0, 5)):
        whole, *steps = found[place * each : (place + 1) * each]
        assert [len(shapes(network, "arrow")) for network in steps] == steps_of(schedule, chunk)
        assert len(shapes(whole, "arrow")) == 15


def test_the_whole_tree_numbers_links_by_their_steps() -> None:
    schedule = multitree.all_gather(load_topology("mesh:3x3"))
    whole = networks(draw_trees(schedule, [4]))[0]
    written = sorted(int(text.text or "") for text in shapes(whole, "step"))
    assert written == sorted(schedule.step[schedule.chunk == 4].tolist())


def test_ranks_fill_as_the_chunk_spreads() -> None:
    schedule = multitree.all_gather(load_topology("torus:4x4"))
    _, *steps = networks(draw_trees(schedule))
    held = [1]
    for count in steps_of(schedule, 0)[:-1]:
        held.append(held[-1] + count)
    assert [len(shapes(network, "rank")) for network in steps] == held


def test_ranks_empty_as_sums_move_on() -> None:
    schedule = multitree.reduce_scatter(load_topology("torus:4x4"))
    whole, *steps = networks(draw_trees(schedule))
    assert len(shapes(steps[0], "rank")) == 16
    assert len(shapes(whole, "rank")) == 1
    assert all(len(shapes(network, "home")) == 1 for network in steps)


def test_transfers_over_switches_show_all_their_links() -> None:
    schedule = multitree.all_gather(load_topology("fattree:16"))
    whole = networks(draw_trees(schedule))[0]
    rows = [row for row in range(schedule.transfers) if schedule.chunk[row] == 0]
    assert len(shapes(whole, "arrow")) == sum(len(schedule.route_of(row)) for row in rows)
    assert len(shapes(whole, "switch")) == schedule.topology.switches


def test_colours_go_from_the_first_step_to_the_last() -> None:
    picture = draw_trees(ring.all_gather(load_topology("ring:12")))
    colours = dict.fromkeys(re.findall(r"color:(#[0-9a-f]{6})\"", picture))
    assert len(colours) == 11


def test_a_chunk_that_is_not_there_is_refused() -> None:
    schedule = multitree.all_gather(load_topology("ring:4"))
    with pytest.raises(ScheduleError, match=r"no chunk 4, the schedule has 0\.\.3"):
        draw_trees(schedule, [0, 4])


def test_pictures_without_end_are_refused() -> None:
    with pytest.raises(LimitError, match="networks of the picture"):
        draw_trees(ring.all_gather(load_topology("ring:700")))
    with pytest.raises(LimitError, match="of all networks of the picture"):
        draw_trees(multitree.all_gather(load_topology("torus:16x16")), range(4))
