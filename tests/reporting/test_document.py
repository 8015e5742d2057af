"""What a report reads, what it makes of it, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import limits
from weft.reporting import make_document, make_page, result_sections
from weft.reporting.fabric_shape import find_shape
from weft.reporting.motion import MOST_CROSSINGS, find_motion
from weft.reporting.result_sections import describe_segment

VENDOR = Path(weft.reporting.__file__).parent / "vendor"


def sections(*sources: Any, kind: str | None = None, **how: Any) -> list[dict[str, Any]]:
    found = make_document(sources, **how)["sections"]
    return [section for section in found if kind in (None, section["kind"])]


def text_of(found: list[dict[str, Any]]) -> str:
    return json.dumps(found, ensure_ascii=False)


@pytest.fixture(scope="module")
def plan() -> weft.Plan:
    return weft.plan("ring:4", ["64KiB", "1MiB"], algorithms=["ring", "recursive_doubling"])


def test_a_plan_shows_times_against_size_reasons_fabric_and_path(plan: weft.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.weft")
    found = sections(tmp_path / "plan.weft")
    assert [section["kind"] for section in found] == [
        "chart", "table", "facts", "bars", "fabric", "table", "words", "table", "text"
    ]  # fmt: skip
    chart = found[0]
    assert chart["sizes"] == [64 << 10, 1 << 20]
    assert chart["series"][0]["seconds"] == [point.seconds for point in plan.points]
    assert chart["series"][-1] == {
        "label": "bound", "seconds": [point.bound_seconds for point in plan.points], "bound": True
    }  # fmt: skip
    assert found[-1]["text"] == plan.explain()


def test_a_schedule_file_runs_at_the_size_that_is_given(tmp_path: Path) -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    for name in ("ring.weft", "ring.json"):
        weft.save_schedule(schedule, tmp_path / name)
        facts = sections(tmp_path / name, size="4MB", kind="facts")[0]
        assert facts["title"] == "ring all_reduce of 4MB on ring:4@bw=1GB/s,lat=1us"
        assert ["verified", "yes"] in facts["facts"]


def test_crossings_are_those_of_the_simulation() -> None:
    topology = weft.load_topology("ring:4@bw=1GB/s,lat=1us")
    schedule = weft.algorithms.ring.all_reduce(topology)
    result = weft.simulate(schedule, "4MB", segment_bytes=None, record=True)
    shape = find_shape(topology)
    assert shape is not None
    motion = find_motion(result, shape)
    assert motion is not None
    timeline = result.timeline
    assert timeline is not None
    expected = sorted(
        zip(timeline.link.tolist(), timeline.start_ps.tolist(), timeline.end_ps.tolist(), strict=True)
    )
    ends = [start + took for start, took in zip(motion["start"], motion["took"], strict=True)]
    assert sorted(zip(motion["line"], motion["start"], ends, strict=True)) == expected
    assert motion["end"] == result.time_ps
    assert motion["moments"] is None


def test_of_a_long_run_all_that_is_under_way_at_its_moments_is_kept() -> None:
    topology = weft.load_topology("torus:4x4")
    schedule = weft.algorithms.bucket.all_reduce(topology)
    result = weft.simulate(schedule, "64MiB", segment_bytes="64KiB", record=True)
    shape, timeline = find_shape(topology), result.timeline
    assert shape is not None
    assert timeline is not None
    assert len(timeline.link) > MOST_CROSSINGS
    motion = find_motion(result, shape)
    assert motion is not None
    assert len(motion["line"]) <= MOST_CROSSINGS
    kept = list(zip(motion["line"], motion["start"], motion["took"], strict=True))
    for moment in motion["moments"][::17]:
        under_way = (timeline.start_ps <= moment) & (moment < timeline.end_ps)
        shown = [line for line, start, took in kept if start <= moment < start + took]
        assert sorted(shown) == sorted(timeline.link[under_way].tolist())


def test_the_critical_path_names_its_links_and_a_run_its_bound() -> None:
    for spec, algorithm, over in [
        ("ring:4@bw=1GB/s", "ring", r"rank (\d) and rank (\d), over link \1->\2 \(1 GB/s\)\."),
        (
            "hosts:2,2@uplink=5GB/s",
            "ring",
            r"over 1->s0, s0->s2, s2->s1, s1->2, of which s0->s2 \(5 GB/s\) is the slowest\.",
        ),
    ]:
        topology = weft.load_topology(spec)
        schedule = weft.algorithms.registry.find(algorithm).build(topology, "all_reduce")
        result = weft.simulate(schedule, "4MB", segment_bytes=None)
        bound = weft.bounds.lower_bound(topology, "all_reduce", 4_000_000)
        printed = result.to_dict() | {"bound_seconds": bound.seconds, "bound_kind": bound.kind}
        for source in (result, json.loads(json.dumps(printed))):
            found = sections(source)
            words = next(one for one in found if one["title"] == "Critical path")
            assert re.search(over, words["paragraphs"][-1]), words["paragraphs"][-1]
            rows = next(one for one in found if one["title"] == "Along the critical path")["rows"]
            step = result.critical_path[0]
            assert rows[0][1] == ", ".join(topology.link_name(link) for link in step.links[:4])
            assert bound.kind in dict(found[0]["facts"])["bound"]
            assert next(one for one in found if one["kind"] == "bars")["bound"] == bound.seconds


def test_links_of_a_document_that_are_not_there_are_left_out() -> None:
    result = weft.simulate(weft.algorithms.ring.all_reduce(weft.load_topology("ring:4")), "4MB")
    printed = json.loads(json.dumps(result.to_dict()))
    for step in printed["critical_path"]:
        step["links"] = [10**12, -1]
    rows = next(one for one in sections(printed) if one["title"] == "Along the critical path")["rows"]
    assert {row[1] for row in rows} <= {"-", ""}


def test_of_many_hosts_a_few_are_drawn_and_one_stands_for_the_others() -> None:
    topology = weft.load_topology("rails:128x8")
    shape = find_shape(topology)
    assert shape is not None
    assert shape.topology.ranks == 4 * 8
    assert "mean of 125 hosts" in shape.hosts
    # Every link has its line, between the nodes that are drawn for its ends.
    ends = [(int(a), int(b)) for a, b in zip(shape.topology.link_src, shape.topology.link_dst, strict=True)]
    for link in range(topology.links):
        pair = shape.node_of[topology.link_src[link]], shape.node_of[topology.link_dst[link]]
        assert ends[shape.line_of[link]] == pair


def test_the_line_of_many_links_has_their_mean_use() -> None:
    topology = weft.load_topology("rails:64x8")
    shape = find_shape(topology)
    assert shape is not None
    from weft.reporting.fabric_picture import LinkUse, fabric_section

    use = [(link % 10) / 10 for link in range(topology.links)]
    section = fabric_section(topology, [LinkUse("made up", use)])
    for line in (0, 40, len(section["lines"]) - 1):
        members = [use[link] for link in range(topology.links) if shape.line_of[link] == line]
        assert section["runs"][0]["busy"][line] == pytest.approx(sum(members) / len(members), abs=1e-4)


def test_the_legend_names_kinds_of_nodes_and_speeds_with_units() -> None:
    fabric = sections(weft.load_topology("dgx-h100:2+fail=host0.nic1"), kind="fabric")[0]
    assert [name for _, name in fabric["kinds"]] == [
        "rank",
        "NVSwitch",
        "PCIe switch",
        "NIC",
        "failed",
        "switch",
    ]
    assert {kind for _, _, _, kind, _ in fabric["nodes"]} == {kind for kind, _ in fabric["kinds"]}
    assert [text.partition(",")[0] for _, text in fabric["speeds"]] == ["450 GB/s", "63 GB/s", "50 GB/s"]
    links = sum(int(text.split(", ")[1].split()[0]) for _, text in fabric["speeds"])
    assert links == weft.load_topology("dgx-h100:2+fail=host0.nic1").links
    for look, name in zip(fabric["line_speeds"], fabric["line_names"], strict=True):
        assert [look, True] in [
            [known, name.endswith(text.partition(",")[0])] for known, text in fabric["speeds"]
        ]


def test_the_legend_of_many_speeds_is_short() -> None:
    uplinks = "/".join(f"{speed}GB/s" for speed in range(1, 11))
    fabric = sections(
        weft.load_topology(f"hosts:{','.join('2' * 10)}@intra=100GB/s,uplink={uplinks}"), kind="fabric"
    )[0]
    assert [text for _, text in fabric["speeds"]][2:] == [
        "9 GB/s, 2 links", "6 speeds between", "2 GB/s, 2 links", "1 GB/s, 2 links"
    ]  # fmt: skip


def busiest(found: list[dict[str, Any]]) -> dict[str, Any]:
    (table,) = (one for one in found if one["title"] == "Busiest links")
    assert table["columns"] == ["link", "speed", "busy share of the time"]
    return table


def test_the_busiest_links_of_a_run_are_listed() -> None:
    topology = weft.load_topology("hosts:4,2@intra=100GB/s,uplink=10GB/s")
    result = weft.simulate(weft.algorithms.ring.all_reduce(topology), "16MiB")
    shares = {
        topology.link_name(link): 100 * busy / result.time_ps for link, busy in enumerate(result.link_busy_ps)
    }
    document = json.loads(json.dumps(result.to_dict()))
    for found in (sections(result), sections(document)):
        rows = busiest(found)["rows"]
        assert rows[0][1] == "10 GB/s"
        assert [row[2] for row in rows] == [f"{shares[row[0]]:.1f} %" for row in rows]
        assert [row[0] for row in rows[:2]] == sorted(shares, key=lambda name: -shares[name])[:2]


def test_a_training_job_lists_at_most_twenty_links_and_counts_the_idle_ones() -> None:
    found = weft.train("resnet50", "torus:4x4", iterations=3)
    table = busiest(sections(found))
    assert len(table["rows"]) == 20
    shares = sorted(found.run.link_use, reverse=True)
    assert [row[2] for row in table["rows"]] == [f"{100 * share:.1f} %" for share in shares[:20]]
    idle = sum(share == 0 for share in shares)
    assert (f"{idle:,} carry nothing" if idle else "none is idle") in table["note"]


def test_uneven_hosts_are_represented_as_well() -> None:
    topology = weft.load_topology(f"hosts:{','.join(str(8 + number % 3) for number in range(64))}")
    shape = find_shape(topology)
    assert shape is not None
    assert shape.topology.nodes < 100
    assert int(shape.node_of.max()) == shape.topology.nodes - 1


def test_measured_times_stand_beside_what_a_plan_predicts(plan: weft.Plan) -> None:
    series = {"median_seconds": 0.5}
    row = {
        "collective": "all_reduce",
        "ranks": 4,
        "size_bytes": 1 << 20,
        "contestants": {"weft": {"in": series}},
    }
    bench = {"ranks": 4, "rows": [row], "versions": {"weft": {}}, "machine": "here", "rounds": 3}
    chart = next(one for one in sections(bench, plan, kind="chart") if "measured" in one["title"])
    choice = plan.choose("1MiB")
    run = weft.simulate(choice.schedule, "1MiB", segment_bytes=choice.segment_bytes)
    assert {line["label"]: line["seconds"] for line in chart["series"]} == {
        "weft, measured": [0.5], "predicted": [run.seconds]
    }  # fmt: skip


def test_a_comparison_shows_the_fastest_and_the_ring() -> None:
    found = weft.compare("torus:4x4", "1MiB", algorithms=["multitree", "bucket", "ring"])
    fabric = sections(found, kind="fabric")[0]
    best = found.best
    assert best is not None
    assert [run["label"].partition(":")[0] for run in fabric["runs"]] == [best.label, "ring"]
    assert all(run["motion"]["line"] for run in fabric["runs"])


def test_sizes_of_groups_are_never_written_as_nothing() -> None:
    found = weft.train("resnet50", "switch:4@bw=1.25GB/s,lat=25us", iterations=3, policy="wfbp")
    table = next(one for one in sections(found, kind="table") if one["title"] == "Groups of gradients")
    sizes = [row[1] for row in table["rows"]]
    assert any(size.endswith("KiB") for size in sizes)
    assert not any(size.startswith("0") for size in sizes)


def test_claims_are_shown_with_verdict_and_reason() -> None:
    claim = {"paper": "dear", "id": "dear-x", "claim": "twice as fast", "paper_value": 2.0, "ours": 1.9,
             "deviation": -0.05, "verdict": "within_10", "why": "rounding"}  # fmt: skip
    table = sections({"version": 1, "claims": [claim]}, kind="table")[0]
    assert table["rows"] == [["dear", "twice as fast", "within 10 %", "rounding", "2", "1.9", "-5 %"]]
    assert table["note"].endswith("Numbers are in the unit that the claim names.")


def test_a_trace_becomes_a_timeline(tmp_path: Path) -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    weft.export.write_trace(schedule, weft.simulate(schedule, "1MiB", record=True), tmp_path / "trace.json")
    timeline = sections(tmp_path / "trace.json", kind="timeline")[0]
    assert {track["process"] for track in timeline["tracks"]} == {"ranks", "links"}
    assert len(timeline["tracks"]) == 4 + 4


def test_the_policy_names_each_script_and_style_by_its_hash() -> None:
    page = make_page(make_document([weft.load_topology("ring:4")]))
    blocks = re.findall(r"<(script|style)>(.*?)</\1>", page, re.DOTALL)
    assert len(blocks) == 3
    for _, text in blocks:
        assert f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in page
    assert "unsafe" not in page.partition("</head>")[0].partition('content="')[2].partition('"')[0]
    assert not re.search(r"\s(?:src|href)=\"(?!data:)", page.partition('id="document"')[0])


def test_a_page_without_data_is_below_300_kb() -> None:
    assert len(make_page({"version": 1, "title": "empty", "sections": []}).encode()) < 300_000


def test_the_library_comes_with_its_licence_and_version() -> None:
    version = re.search(r"v(\d+\.\d+\.\d+)", (VENDOR / "uPlot.iife.min.js").read_text("utf-8")[:200])
    assert version is not None
    assert f"# uPlot {version[1]}" in (VENDOR / "README.md").read_text("utf-8")
    licence = (VENDOR / "LICENSE-uPlot").read_text("utf-8").strip()
    assert "The MIT License" in licence
    page = make_page({"version": 1, "title": "empty", "sections": []})
    assert f"<script>/*!\n{licence}\n*/\n" in page


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "one.json: is no plan, schedule, result or trace"),
        (b'name = "lab"', "a file with a topology is drawn by weft topology FILE --report PAGE"),
        (b"{", "one.json: is neither JSON nor a plan, schedule or trace"),
        (b"[]3", "one.json: is not a Chrome trace"),
        (b'{"traceEvents": 3}', "one.json: is not a Chrome trace"),
        (b'{"a": 1}', "is not a result that a report shows; give what compare, plan, simulate"),
        (b'{"claims": 3}', "one.json: Expected `array`, got `int` - at `$.claims`"),
        (b'{"results": [], "bound_seconds": "x", "topology": "a", "size_bytes": 1}', "at `$.bound_seconds`"),
    ],
)
def test_what_is_no_source_is_refused_with_its_place(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "one.json").write_bytes(data)
    with pytest.raises(weft.InputError) as caught:
        weft.report(tmp_path / "one.json")
    assert complaint in str(caught.value)


def test_nothing_or_something_else_is_refused() -> None:
    with pytest.raises(weft.InputError, match="needs something to show"):
        weft.report()
    with pytest.raises(weft.InputError, match="cannot show int"):
        weft.report(3)  # type: ignore[arg-type]


def test_a_result_never_reads_a_file_that_it_names(tmp_path: Path) -> None:
    weft.save_topology(weft.load_topology("ring:4"), tmp_path / "ring.toml")
    row = {"algorithm": "ring", "verified": True, "seconds": 1.0}
    named = {"topology": str(tmp_path / "ring.toml"), "size_bytes": 1, "bound_seconds": 0.1, "results": [row]}
    assert sections(named, kind="fabric") == []
    assert sections(named | {"topology": "ring:4"}, kind="fabric") != []


def test_long_tables_are_cut_and_say_so() -> None:
    rows = [{"algorithm": "x" * 5000, "verified": True, "seconds": 1.0}] * 5000
    found = sections({"topology": "t", "size_bytes": 1, "bound_seconds": 0.1, "results": rows})
    assert len(text_of(found)) < 400_000
    assert "The first 200 of 5,000 rows." in text_of(found)


def test_too_many_sources_are_refused() -> None:
    with pytest.raises(weft.LimitError, match="sources of a report"):
        make_document(["x"] * 65)
    assert limits.MAX_REPORT_SOURCE_BYTES >= limits.MAX_SCHEDULE_BYTES


def test_what_is_too_long_to_record_moves_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the middle of each step, what the schedule sends in it is on its first or second half of links."""
    topology = weft.load_topology("switch:4")
    schedule = weft.algorithms.ring.all_reduce(topology)
    monkeypatch.setattr("weft.reporting.motion._MOST_RECORDED", 0)
    result = weft.simulate(schedule, "1MiB", segment_bytes=None)
    shape = find_shape(topology)
    assert shape is not None
    motion = find_motion(result, shape)
    assert motion is not None
    assert (motion["unit"], motion["end"]) == ("steps", 1000 * schedule.steps)
    for step in range(schedule.steps):
        up, down = (
            {
                line
                for line, start, took in zip(motion["line"], motion["start"], motion["took"], strict=True)
                if start <= 1000 * step + part < start + took
            }
            for part in (250, 750)
        )
        assert {topology.link_name(line) for line in up} == {f"{rank}->s0" for rank in range(4)}
        assert {topology.link_name(line) for line in down} == {f"s0->{rank}" for rank in range(4)}


def test_of_a_long_schedule_the_steps_at_its_moments_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = weft.load_topology("ring:64")
    schedule = weft.algorithms.ring.all_reduce(topology)
    monkeypatch.setattr("weft.reporting.motion._MOST_RECORDED", 0)
    monkeypatch.setattr("weft.reporting.motion._MOST_MESSAGES", 1000)
    monkeypatch.setattr("weft.reporting.motion.MOST_CROSSINGS", 700)
    shape = find_shape(topology)
    assert shape is not None
    motion = find_motion(weft.simulate(schedule, "1MiB", segment_bytes=None), shape)
    assert motion is not None
    kept = list(zip(motion["start"], motion["took"], strict=True))
    assert len(motion["moments"]) == 9
    assert [sum(start <= moment < start + took for start, took in kept) for moment in motion["moments"]] == [
        64
    ] * 9


def test_a_long_name_of_a_cluster_does_not_fill_the_page_with_titles() -> None:
    topology = replace(weft.load_topology("ring:4"), name="<b>" + "x" * 4000)
    found = [weft.compare(topology, size, algorithms=["ring"]) for size in ("1MiB", "2MiB")]
    document = make_document([*found, weft.plan(topology, "1MiB", algorithms=["ring"])])
    titles = [document["title"], *(section["title"] for section in document["sections"])]
    assert max(map(len, titles)) <= 160
    assert document["title"].startswith("all_reduce on <b>x")


PROMISED = {"topology": "ring:4", "size_bytes": 1 << 20, "bound_seconds": 0.1, "results": []}


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ('"bound_seconds": 1e999', "is neither JSON"),
        ('"bound_seconds": NaN', "is neither JSON"),
        ('"topology": "\\ud800"', "is neither JSON"),
        ('"bound_seconds": -1', "Expected `float` >= 0"),
        ('"bound_seconds": 1e300', "Expected `float` <= 1000000000000000.0"),
        (f'"size_bytes": {10**400}', "$.size_bytes"),
        ('"size_bytes": -1', "Expected `int` >= 0"),
    ],
)
def test_numbers_that_no_run_has_are_refused_with_their_place(
    tmp_path: Path, changed: str, complaint: str
) -> None:
    own = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in PROMISED.items())
    (tmp_path / "one.json").write_text(f"{{{own}, {changed}}}", "utf-8")
    with pytest.raises(weft.InputError) as caught:
        weft.report(tmp_path / "one.json")
    assert complaint in str(caught.value)
    assert "one.json" in str(caught.value)


def test_documents_without_a_form_are_not_believed_either() -> None:
    for wrong in (float("nan"), float("inf"), -1.0, "1", True, 10**400):
        row = {
            "collective": "all_reduce",
            "ranks": 4,
            "size_bytes": 1024,
            "contestants": {"weft": {"in": {"median_seconds": wrong}}},
            "bound": {"seconds": wrong},
        }
        weft.report({"ranks": 4, "rows": [row], "versions": {}})
        weft.report({"results": [{"seconds": wrong, "exposed_s": 1, "computing_s": 1}]})


def test_a_document_cannot_bring_a_section_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"kind": "timeline", "claims": []}', "utf-8")
    assert [one["kind"] for one in sections(tmp_path / "one.json")] == ["table"]


def named_at_length(cables: int) -> weft.Topology:
    """Four ranks on two switches with the longest names, and parallel cables between these."""
    topology = weft.Topology.from_links(
        "x" * limits.MAX_SPEC_CHARACTERS,
        4,
        2,
        [(0, 4), (1, 4), (2, 5), (3, 5), *[(4, 5)] * cables],
        bandwidth="1GB/s",
        latency="1us",
        hosts=((0, 1), (2, 3)),
    )
    longest = limits.MAX_SPEC_CHARACTERS
    return replace(topology, switch_names=tuple(f"s{number}.{'y' * (longest - 3)}" for number in "ab"))


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts_in(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in texts_in(one)]
    return [value] if isinstance(value, str) else []


def test_names_as_long_as_can_be_do_not_fill_the_page() -> None:
    topology = named_at_length(2000)
    found = weft.compare(topology, "1MiB", algorithms=["ring"])
    for source in (topology, found, weft.simulate(weft.algorithms.ring.all_reduce(topology), "1MiB")):
        made = sections(source)
        (fabric,) = [section for section in made if section["kind"] == "fabric"]
        assert max(map(len, texts_in(fabric))) < 300
        assert max(map(len, texts_in(made))) <= 4000
        assert len(json.dumps(made)) < 2_000_000


def test_a_fabric_with_too_many_parallel_cables_is_not_drawn() -> None:
    topology = named_at_length(limits.MAX_DRAWN_CABLES)
    (found,) = sections(topology)
    assert found["kind"] == "words"
    assert "too large to be drawn link by link" in found["paragraphs"][1]


def test_many_columns_are_cut_and_too_many_comparisons_refused() -> None:
    contestants = {f"peer {number}": {"in": {"median_seconds": 0.5}} for number in range(5000)}
    row = {"collective": "all_reduce", "ranks": 4, "size_bytes": 1024, "contestants": contestants}
    found = sections({"ranks": 4, "rows": [row] * 300, "versions": {}})
    assert len(text_of(found)) < 400_000
    assert "The first 40 of 5,002 columns." in text_of(found)
    with pytest.raises(weft.LimitError, match="comparisons of a report"):
        sections({"sizes": [PROMISED] * 257})


def trace_of(events: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    (folder / "trace.json").write_text(json.dumps(events), "utf-8")
    return sections(folder / "trace.json")[0]


def test_a_span_may_have_a_beginning_and_an_end_instead_of_a_duration(tmp_path: Path) -> None:
    """The inner of two spans ends first; an end without a beginning is nothing."""
    place = {"pid": 1, "tid": 2}
    timeline = trace_of(
        [
            {"ph": "E", "ts": 0, **place},
            {"ph": "B", "ts": 10, "name": "outer", **place},
            {"ph": "B", "ts": 12, "name": "inner", **place},
            {"ph": "E", "ts": 15, **place},
            {"ph": "E", "ts": 20, **place},
        ],
        tmp_path,
    )
    spans = [(start, took, timeline["names"][name]) for start, took, name in timeline["tracks"][0]["spans"]]
    assert spans == [(0, 10, "outer"), (2, 3, "inner")]


def test_a_trace_without_spans_says_so(tmp_path: Path) -> None:
    for events in ([], [{"ph": "M", "name": "process_name", "args": {"name": "nobody"}}]):
        shown = trace_of(events, tmp_path)
        assert (shown["kind"], shown["title"]) == ("words", "Timeline")
        assert "no spans" in shown["paragraphs"][0]


def test_a_hostile_trace_is_refused_or_makes_a_small_page(tmp_path: Path) -> None:
    long = [{"ph": "X", "ts": n, "dur": 0.5, "name": f"{n}{'x' * 5000}", "tid": n % 3} for n in range(3000)]
    assert len(text_of([trace_of(long, tmp_path)])) < 500_000
    deep = '{"ph": "M", "name": "process_name", "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    wrong = [f'{{"ph": "X", "ts": {number}, "dur": {number}}}' for number in ("1e308", "1e999", "NaN")]
    for event in (deep, *wrong):
        (tmp_path / "trace.json").write_text(f"[{event}]", "utf-8")
        with pytest.raises(weft.FormatError, match="not a Chrome trace"):
            weft.report(tmp_path / "trace.json")


def test_a_name_of_a_file_may_have_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.json")
    path.write_text("[]", "utf-8")
    assert weft.report(path, output=tmp_path / "page.html").encode()


def test_of_many_clusters_that_are_known_by_name_some_are_drawn() -> None:
    results = [PROMISED | {"topology": f"ring:{ranks}"} for ranks in range(3, 33)]
    found = sections({"sizes": results})
    assert sum(one["kind"] == "fabric" for one in found) == 12
    assert "A page builds 12 clusters" in text_of(found)


def test_a_fabric_that_only_a_name_describes_says_so() -> None:
    """A file that was edited by hand may have kept the name of a spec, and documents have no speeds."""
    torus = weft.load_topology("torus:4x4")
    slower = replace(torus, bandwidth=torus.bandwidth // 2)
    found = weft.compare(slower, "1MiB", algorithms=["ring"])
    run = weft.simulate(weft.algorithms.ring.all_reduce(slower), "1MiB")
    for source in (found.to_dict(), run.to_dict()):
        (fabric,) = sections(source, kind="fabric")
        assert "Drawn from its name, because the source has no links or speeds." in fabric["summary"]
    for own in (found, run, slower):
        (fabric,) = sections(own, kind="fabric")
        assert "its name" not in fabric["summary"]


def test_measurements_build_a_named_cluster_once_and_only_for_their_collective(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []
    build = result_sections.named_topology

    def note(name: str) -> weft.Topology | None:
        built.append(name)
        return build(name)

    monkeypatch.setattr(result_sections, "named_topology", note)
    row = {"collective": "all_reduce", "ranks": 4, "size_bytes": 1 << 20, "contestants": {}}
    bench = {"ranks": 4, "rows": [row], "versions": {}, "machine": "here", "rounds": 3}
    results = [PROMISED | {"topology": f"ring:{ranks}"} for ranks in range(3, 33)]
    gathered = [PROMISED | {"topology": f"mesh:{ranks}", "collective": "all_gather"} for ranks in (3, 4)]
    made = sections({"sizes": gathered}, {"sizes": results}, bench, bench, bench)
    assert len(built) == len(set(built)) == 12
    assert text_of(made).count("Comparisons on others are not shown as predictions.") == 3


@pytest.mark.parametrize(
    ("segment", "shown"),
    [(None, "whole messages"), (2839894, "2.71MiB"), (65536, "64KiB"), (1001, "0.978KiB")],
)
def test_segments_are_shown_as_a_plan_shows_them_on_a_terminal(segment: int | None, shown: str) -> None:
    assert describe_segment(segment) == shown
