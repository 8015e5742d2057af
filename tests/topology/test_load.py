"""The one door: formats are told apart by what is in them, and nothing hostile gets through."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import FormatError, InputError, TopologyError
from weft.topology import Topology, load_topology
from weft.topology.kinds import KINDS
from weft.topology.toml_file import parse_toml

DATA = Path(__file__).parents[1] / "data" / "topology"
PAIR = 'ranks = 2\n[[links]]\nsrc = 0\ndst = 1\nbandwidth = "1GB/s"\nlatency = "1us"\nduplex = true\n'


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_a_topology_is_returned_as_it_is() -> None:
    ring = load_topology("ring:4")
    assert load_topology(ring) is ring


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_formats_are_told_apart_whatever_the_file_is_called(name: str, tmp_path: Path) -> None:
    renamed = tmp_path / "cluster"
    renamed.write_bytes((DATA / name).read_bytes())
    assert load_topology(renamed) == load_topology(str(DATA / name))
    renamed.write_bytes(b"\xef\xbb\xbf" + (DATA / name).read_bytes())
    assert load_topology(renamed) == load_topology(DATA / name)


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(PAIR.encode()))
    assert load_topology("-").links == 2
    monkeypatch.setattr("sys.stdin", Stdin(b"oops"))
    with pytest.raises(FormatError, match="<stdin>: line 1"):
        load_topology("-")


def test_a_name_that_is_neither_file_nor_spec_says_both() -> None:
    with pytest.raises(InputError, match="no such file, and not a spec either; a spec looks like torus:8x8"):
        load_topology("cluster.toml")
    with pytest.raises(InputError, match="no such file"):
        load_topology(Path("cluster.toml"))


def test_a_file_with_nearly_the_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(PAIR)
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(InputError, match=re.escape(f"did you mean {tmp_path / 'cluster.toml'}?")):
        load_topology(tmp_path / "clustr.toml")
    with pytest.raises(InputError, match="a spec looks like"):
        load_topology(tmp_path / "something.toml")


def test_a_kind_without_its_shape_is_completed() -> None:
    with pytest.raises(InputError, match=re.escape("did you mean dgx-h100:1?")):
        load_topology("dgx-h100")
    with pytest.raises(InputError, match=re.escape("did you mean torus:8x8@bw=1GB/s?")):
        load_topology("torus@bw=1GB/s")
    assert all(load_topology(f"{name}:{kind.example}").ranks for name, kind in KINDS.items())


def test_a_folder_is_no_topology(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a regular file"):
        load_topology(tmp_path)


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\ufeff"])
def test_an_empty_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(FormatError, match="the file is empty; expected a TOML topology"):
        load_topology(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ranks = 2\nname = '\xff\xfe'\n", "line 2: not UTF-8 text"),
        (b"\xff\xfer\0a\0n\0k\0s\0", "line 1: not UTF-8 text"),
        (b"\0" * 1000, "line 1: not TOML"),
        (b"ranks = 2\0", "line 1: not TOML"),
        (b"<\0system/>", "line 1: not XML"),
        (b"GPU0 GPU1\n\0", "line 2: expected the row of GPU0"),
        (b"\x89PNG\r\n\x1a\n", "line 1: not UTF-8 text"),
        (b"\x7fELF\x02\x01\x01", "line 1: not TOML"),
        (b"[" * 10_000, "line 1: not TOML"),
        (b"a = " + b"[" * 10_000, "nested too deeply"),
        (b"<a>" * 10_000, "line 1: nested deeper than 64"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "line 1: has a DOCTYPE"),
        (b"\x1b[31m", "no line starts with GPU0"),
    ],
)
def test_hostile_bytes_are_refused_with_their_place(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        load_topology(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_of_100_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    with pytest.raises(FormatError, match="larger than the 16 MiB that Weft accepts"):
        load_topology(path)


@pytest.mark.parametrize("source", [None, 5, ["ring:4"], b"ring:4"])
def test_other_things_are_no_topology(source: object) -> None:
    with pytest.raises(TopologyError, match="a topology is a spec, a file or a networkx graph, not"):
        load_topology(source)


def test_a_topology_prints_what_it_is() -> None:
    assert repr(load_topology("hosts:3,2")) == "<Topology hosts:3,2: 5 ranks, 3 switches, 14 links>"


def test_a_host_without_ranks_is_refused() -> None:
    ring = load_topology("ring:4")
    with pytest.raises(TopologyError, match="host 2 has no ranks"):
        replace(ring, hosts=((0, 1), (2, 3), ()))


def test_a_topology_checks_its_columns() -> None:
    ring = load_topology("ring:3")
    columns = (ring.link_src, ring.link_dst, ring.bandwidth, ring.latency_ps)
    with pytest.raises(TopologyError, match="hosts must name every rank"):
        Topology("x", 3, 0, *columns, hosts=((0, 1),))
    with pytest.raises(TopologyError, match="ends at a node that is not there"):
        Topology("x", 2, 0, *columns)
    with pytest.raises(TopologyError, match="link columns differ in length"):
        Topology("x", 3, 0, ring.link_src[:5], *columns[1:])
    with pytest.raises(TopologyError, match="needs a speed of at least 1 byte"):
        Topology("x", 3, 0, *columns[:2], ring.bandwidth * 0, ring.latency_ps)
    with pytest.raises(TopologyError, match="has a latency outside"):
        Topology("x", 3, 0, *columns[:3], ring.latency_ps - 2 * 10**6)


def test_the_transpose_turns_links_and_addresses_and_turns_back() -> None:
    lab = load_topology(DATA / "lab.toml")
    turned = lab.transpose()
    assert [turned.link_name(link) for link in (0, 12)] == ["s0->0", "s1->s0"]
    assert turned.addresses == ((12, "10.0.0.2", "10.0.0.1"), (13, "10.0.0.1", "10.0.0.2"))
    assert turned.transpose() == lab
    assert (lab.ingress(1), turned.egress(1)) == (10 * 10**9, 10 * 10**9)


def documented(pattern: str) -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "topology.md").read_text("utf-8")
    return re.findall(pattern, text, re.DOTALL)


def test_the_documented_file_is_read() -> None:
    (text,) = documented(r"```toml\n(.*?)```")
    found = parse_toml(text, "docs.toml")
    assert (found.name, found.ranks, found.switches, found.links) == ("lab", 4, 2, 12)


def test_the_documented_graph_is_read() -> None:
    (code,) = documented(r"```python\n(.*?)```")
    names: dict[str, Topology] = {}
    exec(code, names)
    assert (names["topology"].ranks, names["topology"].hosts) == (3, ((0,), (1,), (2,)))


def test_the_documented_specs_are_read() -> None:
    specs = [spec for kind in KINDS for spec in documented(rf"`({kind}:[^`]+)`")]
    assert len(specs) >= 13
    for spec in specs:
        assert load_topology(spec).name == spec
