"""Slurm's hostlists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FormatError, LimitError
from weft.topology.hostlist import expand_hostlist, format_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[001-003,070]", ["node001", "node002", "node003", "node070"]),
        ("a[8-11],b", ["a8", "a9", "a10", "a11", "b"]),
        ("r[1-2]n[1,3]-ib", ["r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib"]),
        (" a , b ", ["a", "b"]),
    ],
)
def test_a_hostlist_names_machines_in_its_order(text: str, names: list[str]) -> None:
    assert expand_hostlist(text, "file") == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node[1-", "brackets"),
        ("node]1[", "brackets"),
        ("node[[1]]", "brackets"),
        ("node[]", "range"),
        ("node[3-1]", "ends before it begins"),
        ("node[1-2:2]", "range"),
        ("a,,b", "empty name"),
        ("", "empty name"),
        ("a b", "brackets"),
        ("node\x1b", "only letters"),
    ],
)
def test_what_is_no_hostlist_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        expand_hostlist(text, "topology.conf", "line 3")
    assert "topology.conf" in str(caught.value)
    assert "line 3" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["n[1-999999999999]", "n[0-999]x[0-999]", ",".join(["n[1-60000]"] * 2), "n[0-9]" * 40]
)
def test_a_short_hostlist_of_very_many_machines_is_refused_before_it_is_written_out(text: str) -> None:
    with pytest.raises(LimitError, match="more than the 65,536"):
        expand_hostlist(text, "file")


NAMES = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}" if width else f"{prefix}x",
    st.sampled_from(["", "n", "rack1-"]),
    st.integers(0, 120),
    st.integers(0, 3),
)


@given(st.lists(NAMES, min_size=1, max_size=12))
def test_names_written_as_a_hostlist_are_the_same_names(names: list[str]) -> None:
    assert expand_hostlist(format_hostlist(names), "file") == names


def test_numbers_in_a_row_become_a_range() -> None:
    assert format_hostlist([f"node{n:03d}" for n in range(1, 65)]) == "node[001-064]"
    assert format_hostlist(["n9", "n10", "n12"]) == "n[9-10,12]"
