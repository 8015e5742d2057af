"""Schedules that people write: what may be left out, and that every mistake is named with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.oracle import accepts
from support.schedules import relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft import limits
from weft.errors import FormatError
from weft.schedule import Schedule
from weft.schedule.json_form import schedule_from_json, schedule_to_json
from weft.topology import load_topology


def document(**changes: Any) -> dict[str, Any]:
    """A star on three ranks, some keys of it changed; None removes a key."""
    rows = [[0, 0, 1, 0, "reduce"], [0, 0, 2, 0, "reduce"], [1, 0, 0, 1, "copy"], [1, 0, 0, 2, "copy"]]
    star = {
        "weft_schedule": 1,
        "topology": "fullmesh:3",
        "collective": "all_reduce",
        "algorithm": "star",
        "chunks": 1,
        "transfers": rows,
    }
    return {key: value for key, value in (star | changes).items() if value is not None}


def read(**changes: Any) -> Schedule:
    return schedule_from_json(json.dumps(document(**changes)), "star.json")


def row(*values: Any) -> list[Any]:
    """Transfers whose third is the given one."""
    return [*document()["transfers"][:2], list(values), document()["transfers"][3]]


def test_a_hand_written_star_works() -> None:
    star = read(notes=["by hand"])
    assert accepts(star)
    assert (star.algorithm, star.notes, star.steps) == ("star", ("by hand",), 2)


def test_rows_are_ordered_by_step_and_stay_as_written_inside_one() -> None:
    rows = [[1, 0, 0, 2, "copy"], [0, 0, 2, 0, "reduce"], [1, 0, 0, 1, "copy"], [0, 0, 1, 0, "reduce"]]
    star = read(transfers=rows)
    assert star.step.tolist() == [0, 0, 1, 1]
    assert star.src.tolist() == [2, 1, 0, 0]
    assert star.dst.tolist() == [0, 0, 2, 1]
    assert accepts(star)


@pytest.mark.parametrize(
    ("changes", "weights", "denominator"),
    [
        ({"chunks": None}, [1, 1, 1], 3),
        ({"chunks": 2}, [1, 1], 2),
        ({"chunks": None, "weights": [2, 3]}, [2, 3], 5),
        ({"chunks": 2, "weights": [2, 3], "denominator": 5}, [2, 3], 5),
        ({"chunks": None, "collective": "all_to_all", "transfers": []}, [1] * 9, 3),
        ({"chunks": None, "collective": "all_gather", "transfers": []}, [1] * 3, 3),
        ({"chunks": 6, "collective": "reduce_scatter", "transfers": []}, [1] * 6, 6),
    ],
)
def test_weights_may_be_left_out(changes: dict[str, Any], weights: list[int], denominator: int) -> None:
    schedule = read(**changes)
    assert (schedule.weights.tolist(), schedule.denominator) == (weights, denominator)


def test_owners_and_root_say_who_ends_with_what() -> None:
    free = read(collective="all_gather", chunks=None, owner=[2, 2, 0], ownership="free", transfers=[])
    assert free.source.tolist() == [2, 2, 0]
    prescribed = read(collective="reduce_scatter", chunks=6, transfers=[])
    assert (prescribed.target.tolist(), prescribed.ownership) == ([0, 0, 1, 1, 2, 2], "prescribed")
    assert read(collective="reduce", root=2, transfers=[]).target.tolist() == [2]


def test_a_route_is_node_names_link_numbers_a_table_entry_or_the_default() -> None:
    topology = load_topology("fattree:2,2,2")
    path = [topology.link_name(link).split("->")[0] for link in topology.route(0, 3)] + ["3"]
    links = list(topology.route(0, 3))
    forms = [path, links, 0, None]
    schedule = read(
        topology="fattree:2,2,2",
        collective="broadcast",
        routes=[links],
        transfers=[[step, 0, 0, 3, "copy", form] for step, form in enumerate(forms)],
    )
    assert [schedule.route_of(index) for index in range(4)] == [tuple(links)] * 4
    assert schedule.route.tolist()[1:] == [0, 0, -1]


def test_equal_routes_are_kept_once() -> None:
    rows = [[step, 0, 0, 1, "copy", ["0", "2", "1"]] for step in range(3)]
    assert read(collective="broadcast", transfers=rows).routes == 1


def test_slots_may_follow_the_route() -> None:
    schedule = read(transfers=row(1, 0, 0, 0, "copy", None, 0, 2))
    assert schedule.slots == 3


@pytest.mark.parametrize(
    "schedule", [ring_all_reduce(load_topology("ring:3")), routed_all_reduce(), relayed_all_to_all()]
)
def test_what_is_written_is_plain_json_and_read_back(schedule: Schedule) -> None:
    written = json.loads(schedule_to_json(schedule))
    assert written["weft_schedule"] == 1
    assert len(written["transfers"]) == schedule.transfers
    assert schedule_from_json(json.dumps(written)) == schedule


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"weft_schedule": None}, "star.json: Object missing required field `weft_schedule`"),
    ({"weft_schedule": 2, "novelty": 1}, "star.json: weft_schedule: format 2 is unknown, this Weft reads 1"),
    ({"weft_schedule": "1"}, "star.json: weft_schedule: Expected `int`, got `str`"),
    ({"algorithm": None}, "star.json: Object missing required field `algorithm`"),
    ({"owners": [0]}, "star.json: Object contains unknown field `owners`"),
    ({"collective": "sum"}, "star.json: collective: 'sum' is unknown, expected one of all_reduce, "),
    ({"topology": "star.toml"}, "star.json: topology: spec 'star.toml': expected KIND:SHAPE"),
    ({"topology": "ring:x"}, "star.json: topology: ring:x: shape 'x' must be whole numbers"),
    ({"topology": "/etc/passwd"}, "star.json: topology: spec '/etc/passwd': expected KIND:SHAPE"),
    ({"topology": {"name": "x"}}, "star.json: topology: Object missing required field `ranks`"),
    ({"topology": 3}, "star.json: topology: Expected `str | object`, got `int`"),
    ({"transfers": {}}, "star.json: transfers: Expected `array`, got `object`"),
    ({"transfers": [[0, 0, 1, 0]]}, "star.json: transfers[0]: Expected `array` of at least length 5, got 4"),
    (
        {"transfers": [[0, 0, 1, 0, "copy", None, 0, 0, 7]]},
        "star.json: transfers[0][8]: a transfer has at most 8 entries",
    ),
    ({"transfers": row(0, 0, 0, 1, "add")}, "star.json: transfers[2][4]: Invalid enum value 'add'"),
    ({"transfers": row(0, 0, 0, 1, 1)}, "star.json: transfers[2][4]: Expected `str`, got `int`"),
    ({"transfers": row(0.5, 0, 0, 1, "copy")}, "star.json: transfers[2][0]: Expected `int`, got `float`"),
    ({"transfers": row(-1, 0, 0, 1, "copy")}, "star.json: transfers[2][0]: Expected `int` >= 0"),
    ({"transfers": row(2**31, 0, 0, 1, "copy")}, "star.json: transfers[2][0]: Expected `int` <= 2147483647"),
    ({"transfers": row(10**30, 0, 0, 1, "copy")}, "star.json: transfers[2][0]: Expected `int` <= 2147483647"),
    ({"transfers": row(0, 1, 0, 1, "copy")}, "star.json: transfers[2][1]: chunk 1 is outside 0..0"),
    ({"transfers": row(0, 0, 3, 1, "copy")}, "star.json: transfers[2][2]: src 3 is outside 0..2"),
    ({"transfers": row(0, 0, 0, 9, "copy")}, "star.json: transfers[2][3]: dst 9 is outside 0..2"),
    (
        {"transfers": row(0, 0, 1, 1, "copy")},
        "star.json: transfers[2]: rank 1 sends to itself, into the same slot",
    ),
    (
        {"transfers": row(0, 0, 0, 1, "copy", 0)},
        'star.json: transfers[2][5]: there is no route 0 in "routes"',
    ),
    ({"transfers": row(0, 0, 0, 1, "copy", [99])}, "star.json: transfers[2][5][0]: there is no link 99, "),
    ({"transfers": row(0, 0, 0, 1, "copy", [-1])}, "star.json: transfers[2][5][0]: there is no link -1, "),
    (
        {"transfers": row(0, 0, 0, 1, "copy", ["0", "7"])},
        "star.json: transfers[2][5][1]: fullmesh:3: there is no node",
    ),
    (
        {"transfers": row(0, 0, 0, 1, "copy", ["0", 1])},
        "star.json: transfers[2][5]: expected either node names or ",
    ),
    (
        {"topology": "ring:4", "transfers": row(0, 0, 0, 1, "copy", ["0", "2", "1"])},
        "star.json: transfers[2][5][1]: there is no link from 0 to 2",
    ),
    ({"routes": [["0", "x"]]}, "star.json: routes[0][1]: fullmesh:3: there is no node 'x'"),
    (
        {"transfers": row(0, 0, 0, 1, "copy", None, 0, 5000)},
        "star.json: transfers[2][7]: dst_slot 5000 is outside 0..1023",
    ),
    ({"chunks": 2, "weights": [1]}, "star.json: 1 weights, 2 sources, 2 targets"),
    (
        {"weights": [1], "denominator": 2},
        "star.json: the weights of the buffer sum to 1, not to the denominator 2",
    ),
    ({"weights": [0]}, "star.json: the denominator 0 is outside 1.."),
    ({"weights": [-1]}, "star.json: weights[0]: Expected `int` >= 0"),
    (
        {"weights": [2**63 - 1, 2**63 - 1], "chunks": 2},
        "star.json: denominator: a number of 64 bits does not fit into 63",
    ),
    ({"chunks": 0}, "star.json: chunks: Expected `int` >= 1"),
    ({"chunks": 10**9}, "star.json: chunks: 1,000,000,000 is more than the 1,048,576 that Weft accepts"),
    ({"collective": "broadcast", "root": 3}, "star.json: root 3 is not a rank 0..2"),
    ({"ownership": "free"}, "star.json: all_reduce with ownership 'free': it must be none"),
    (
        {"collective": "all_gather", "chunks": 2, "transfers": []},
        "star.json: prescribed ownership: rank r owns",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_is_named_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(**changes)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<json>: Input data was truncated"),
        ("{\n\n  nope}", "<json>: line 3: JSON is malformed"),
        ('{"weft_schedule": 1}x', "<json>: line 1: JSON is malformed: trailing characters"),
        ("[]", "<json>: Expected `object`, got `array`"),
        (b'{"weft_schedule": 1, "algorithm": "\xff"}', "<json>: "),
        ('{"weft_schedule": 1, "algorithm": "\udc80"}', "<json>: "),
    ],
)
def test_what_is_no_json_is_named_with_its_line(text: bytes | str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        schedule_from_json(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize(
    "place",
    [
        "%s",
        '{"weft_schedule": 1, "x": %s',
        '{"weft_schedule": 1, "topology": %s',
        '{"weft_schedule": 1, "transfers": %s',
    ],
)
def test_deep_nesting_is_refused(opening: str, place: str) -> None:
    for depth in (10_000, 1_000_000):
        with pytest.raises(FormatError):
            schedule_from_json(place % (opening * depth))


def test_a_text_that_is_too_large_is_refused_unparsed() -> None:
    with pytest.raises(
        FormatError, match=r"larger than the 16 MiB of JSON that Weft accepts; use a \.weft file"
    ):
        schedule_from_json(b"{" + b" " * limits.MAX_TEXT_BYTES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunks": 1 << 21}, "chunks: 2,097,152 is more than the 1,048,576"),
        (
            {"transfers": [[limits.MAX_STEPS, 0, 0, 1, "copy"]]},
            r"transfers\[0\]\[0\]: step 4194304 is outside",
        ),
        (
            {"topology": "switch:65536", "transfers": [[0, 0, 0, 1, "copy", None, 0, 1023]]},
            "ranks x slots: 67,108,864 is more than",
        ),
    ],
)
def test_a_short_file_cannot_ask_for_much_memory(changes: dict[str, Any], message: str) -> None:
    document = {
        "weft_schedule": 1,
        "collective": "broadcast",
        "algorithm": "mine",
        "chunks": 1,
        "topology": "ring:4",
        "transfers": [],
        **changes,
    }
    with pytest.raises(FormatError, match=message):
        schedule_from_json(json.dumps(document))
