"""Presets: valid, each with a source, and listed on the page as they are."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from weft.algorithms import ring
from weft.errors import InputError
from weft.packets import (
    PRESETS,
    Hardware,
    Rules,
    find_hardware,
    make_tables,
    simulate_tables,
    tables_from_json,
)
from weft.topology import load_topology

PAGE = Path(__file__).parents[2] / "docs" / "packets.md"
BLOCK = re.compile(r"(?<=<!-- presets -->\n).*?(?=<!-- end -->)", re.DOTALL)


def preset_table() -> str:
    """The table of the page."""
    columns = {
        "flit": lambda p: f"{p.flit_bytes} B",
        "packet": lambda p: f"{p.payload_bytes:,} B{', padded' if p.padded else ''}",
        "head": lambda p: f"{p.head_flits * p.flit_bytes} B",
        "virtual channels": lambda p: (
            f"{p.virtual_channels} of {p.buffer_flits:,} flits"
            if p.buffer_flits
            else f"{p.virtual_channels}, long enough"
        ),
        "router, switch": lambda p: f"{p.router_cycles}, {p.switch_cycles} cycles",
        "queue": lambda p: f"{p.queue_packets} packets",
        "adding": lambda p: f"{p.lanes} lanes of {p.lane_elements}" if p.lanes else "free",
        "source": lambda p: p.source,
    }
    lines = [f"| `--hardware` | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for preset in PRESETS.values():
        assert preset.cycle_ps == 1000  # as the page says
        cells = [f"`{preset.name}`", *(cell(preset) for cell in columns.values())]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_the_presets() -> None:
    text = PAGE.read_text("utf-8")
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        PAGE.write_text(BLOCK.sub(preset_table(), text), "utf-8")
    assert BLOCK.findall(PAGE.read_text("utf-8")) == [preset_table()]


def test_the_file_on_the_page_is_the_ring_it_says() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert json.loads(shown)["version"] == 1
    tables = tables_from_json(shown.encode())
    assert tables == make_tables(ring.all_reduce(load_topology("ring:3")), "12KiB")


def test_the_page_names_the_cycles_that_a_ring_takes() -> None:
    torus = load_topology("torus:4x4@bw=16GB/s,lat=150ns")
    result = simulate_tables(make_tables(ring.all_reduce(torus), "32KiB"))
    assert f"quiet after {result.total_cycles:,} cycles for 32 KiB here" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_valid_and_says_where_it_is_from(name: str) -> None:
    preset = find_hardware(name)
    assert preset.name == name
    assert len(preset.source) > 20
    assert replace(preset) == preset


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flit_bytes", 0),
        ("virtual_channels", 0),
        ("buffer_flits", -1),
        ("head_flits", -1),
        ("cycle_ps", 1 << 31),
        ("payload_bytes", True),
        ("queue_packets", 2.5),
    ],
)
def test_hardware_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"mine: {field} is"):
        Hardware("mine", "a test", **{field: value})


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean nvlink\?.*multitree-isca21"):
        find_hardware("nvlnk")


def test_adding_is_counted_in_whole_lanes() -> None:
    hardware = find_hardware("multitree-isca21")
    assert hardware.aggregate_ps(0) == 0
    assert hardware.aggregate_ps(4) == 16 * 1000  # one element occupies a lane, and all wait for it
    assert hardware.aggregate_ps(16 * 32 * 4) == 16 * 1000
    assert hardware.aggregate_ps(16 * 32 * 4 + 1) == 32 * 1000
    assert find_hardware("nvlink").aggregate_ps(1 << 20) == 0


def test_the_estimate_of_a_step_is_that_of_the_authors() -> None:
    hardware = find_hardware("multitree-isca21")
    for packets in (1, 57, 58):
        assert hardware.step_ps(packets * 256, "packet") == packets * 1000
    assert hardware.step_ps(59 * 256, "packet") == (17 * 59 - 928) * 1000
    assert hardware.step_ps(59 * 256, "message") == (16 * 59 - 928) * 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [("virtual_channels", 1 << 28), ("flit_bytes", 1 << 24), ("padded", "x"), ("name", 3), ("source", None)],
)
def test_what_no_hardware_can_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        replace(find_hardware("nvlink"), **{field: value})


def test_no_buffer_of_its_own_is_enough_for_the_longest_link() -> None:
    far = load_topology("switch:4@bw=100GB/s,lat=5us")
    tables = make_tables(ring.all_reduce(far), "4MiB")
    short, enough = (simulate_tables(tables, hardware=name) for name in ("multitree-isca21", "nvlink"))
    assert short.credit_share < 0.1
    assert enough.credit_share == 1
    assert enough.time_ps < short.time_ps / 5


@pytest.mark.parametrize("flow_control", ["packet", "message"])
@pytest.mark.parametrize(
    "spec", ["ring:4", "switch:8", "ring:4@bw=100GB/s,lat=5us", "torus:4x4@bw=16GB/s,lat=150ns"]
)
def test_units_of_messages_wait_for_credits_as_packets_do(spec: str, flow_control: str) -> None:
    tables = make_tables(ring.all_reduce(load_topology(spec)), "4MiB")
    fine, coarse = (
        simulate_tables(tables, rules=Rules(flow_control), detail=detail) for detail in ("packet", "message")
    )
    assert coarse.time_ps == pytest.approx(fine.time_ps, rel=0.05)
