"""``weft packets`` and ``weft export --format ni-table``: from a schedule, a plan, a topology or a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run
from cli.test_bad_input import assert_refused

from weft.algorithms import registry
from weft.packets import (
    CODESIGNED,
    PRESETS,
    make_tables,
    simulate_tables,
    tables_from_json,
)
from weft.topology import load_topology

TORUS = "torus:4x4@bw=16GB/s,lat=150ns"
BUILD = (TORUS, "--algorithm", "multitree", "--size", "32KiB")


def without_cost(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("simulation_seconds", "verified")}


def test_the_document_says_what_the_engine_says(weft: Run) -> None:
    document = weft("packets", *BUILD, "--codesigned", "--json").document
    schedule = registry.find("multitree").build(load_topology(TORUS), "all_reduce")
    result = simulate_tables(make_tables(schedule, "32KiB", ports=4), rules=CODESIGNED)
    assert document["cycles"] == result.cycles
    assert document["time_ps"] == result.time_ps
    assert document["flits"] == result.flits
    assert document["link_busy_ps"] == result.link_busy_ps.tolist()
    assert document["port_out_busy_ps"] + document["port_in_busy_ps"] == result.port_busy_ps.tolist()
    assert document["ports"] == 4
    assert document["table_bits"] == document["entries"] * sum(document["entry_bits"].values())
    assert (document["flow_control"], document["strict"], document["lockstep"]) == ("message", True, True)
    assert document["verified"] is True


@pytest.mark.parametrize("rules", [(), ("--codesigned",), ("--flow-control", "message", "--prioritised")])
def test_a_table_runs_as_the_schedule_it_came_from(weft: Run, rules: tuple[str, ...]) -> None:
    assert weft("export", *BUILD, "-o", "a.ni.json").code == 0
    of_schedule = weft("packets", *BUILD, *rules, "--json").document
    of_table = weft("packets", "a.ni.json", *rules, "--json").document
    assert without_cost(of_table) == without_cost(of_schedule)
    assert of_table["verified"] is None


def test_a_table_goes_through_a_pipe(weft: Run) -> None:
    weft("export", *BUILD, "-o", "a.ni.json")
    piped = weft("packets", "-", "--json", stdin=Path("a.ni.json").read_bytes())
    assert without_cost(piped.document) == without_cost(weft("packets", "a.ni.json", "--json").document)


def test_schedule_files_and_plans_become_tables(weft: Run) -> None:
    weft("export", TORUS, "--algorithm", "ring", "-o", "ring.weft")
    weft("plan", TORUS, "--algorithm", "ring", "--size", "32KiB", "-o", "plan.weft")
    times = [
        weft("packets", source, "--size", "32KiB", "--json").document["time_ps"]
        for source in ("ring.weft", "plan.weft")
    ]
    assert len(set(times)) == 1


def test_heads_are_counted(weft: Run) -> None:
    packets = weft("packets", *BUILD, "--json").document
    messages = weft("packets", *BUILD, "--flow-control", "message", "--json").document
    assert packets["head_flits"] == packets["packets"]
    assert packets["head_overhead"] == pytest.approx(1 / 16)
    assert messages["head_flits"] == messages["messages"]
    assert packets["flits"] - packets["head_flits"] == messages["flits"] - messages["head_flits"]


def test_what_is_printed_has_times_tables_and_what_is_busiest(weft: Run) -> None:
    shown = weft("packets", *BUILD).out
    for word in ("cycles of 1 ns", "algbw", "bits: opcode 2", "heads add 6.25 %", "busiest link"):
        assert word in shown
    assert ", port 0 out" in shown
    assert "busiest port" not in weft("packets", "switch:4", "--algorithm", "ring", "--size", "1KiB").out


@pytest.mark.parametrize("hardware", PRESETS)
def test_every_preset_runs_and_is_named_in_the_help(weft: Run, hardware: str) -> None:
    words = ("packets", "switch:4", "--algorithm", "ring", "--size", "100KB", "--hardware", hardware)
    assert weft(*words, "--json").document["hardware"] == hardware
    assert hardware in " ".join(weft("packets", "--help").out.split())


def test_a_wrong_schedule_runs_with_a_warning(weft: Run) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "a.json")
    plan = json.loads(Path("a.json").read_text("utf-8"))
    plan["transfers"].pop()
    Path("b.json").write_text(json.dumps(plan), "utf-8")
    outcome = weft("packets", "b.json", "--size", "1KiB", "--json")
    assert outcome.code == 0
    assert outcome.err.startswith("weft: warning: not correct: ")
    assert outcome.document["verified"] is False


def test_tables_are_written_by_name_and_by_format(weft: Run) -> None:
    first = weft("export", *BUILD, "-o", "a.ni.json", "--json").document
    assert first["format"] == "ni-table"
    assert first["bytes"] == Path("a.ni.json").stat().st_size
    assert first["bits_per_entry"] == sum(first["entry_bits"].values())
    weft("export", *BUILD, "--format", "ni-table", "-o", "b")
    assert Path("a.ni.json").read_bytes() == Path("b").read_bytes()
    assert tables_from_json(Path("b").read_bytes()).ports == 4


def test_a_table_can_be_listed_and_copied(weft: Run) -> None:
    weft("export", *BUILD, "-o", "a.ni.json")
    assert weft("export", "a.ni.json", "-o", "b.ni.json").code == 0
    assert Path("a.ni.json").read_bytes() == Path("b.ni.json").read_bytes()
    weft("export", "a.ni.json", "-o", "a.ni.txt")
    listing = weft("export", *BUILD, "--format", "ni-text", "-o", "-").out
    assert listing == Path("a.ni.txt").read_text("utf-8")
    assert listing.count("\nrank ") == 16


def test_ports_can_be_chosen(weft: Run) -> None:
    assert weft("packets", *BUILD, "--ports", 1, "--json").document["ports"] == 1
    assert weft("export", *BUILD, "--ports", 2, "-o", "a.ni.json", "--json").document["ports"] == 2


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["packets", "ring:4", "--algorithm", "ring"], ["ring:4", "--size 64MiB"]),
        (["packets", "ring:4", "--size", "1KiB"], ["--algorithm"]),
        (["packets", "ring:4", "--algorithm", "ring", "--size", "0"], ["at least 1 byte"]),
        (["packets", *BUILD, "--hardware", "nvlnk"], ["nvlnk", "did you mean nvlink", "ib-100g"]),
        (["packets", *BUILD, "--ports", "0"], ["--ports"]),
        (["packets", *BUILD, "--ports", "300"], ["300", "256"]),
        (["packets", *BUILD, "--codesigned", "--strict"], ["--strict", "--codesigned"]),
        (["packets", *BUILD, "--codesigned", "--flow-control", "packet"], ["--flow-control", "--codesigned"]),
        (["packets", "switch:4", "--algorithm", "ring", "--size", "1KiB", "--ports", "2"], ["1 links", "2"]),
        (["packets", "a.ni.json", "--size", "1KiB"], ["--size", "a.ni.json", "has its own"]),
        (["packets", "a.ni.json", "--ports", "1"], ["--ports", "has its own"]),
        (["packets", "a.ni.json", "--algorithm", "ring", "--size", "1KiB"], ["a.ni.json"]),
        (["packets", "a.ni.json", "--collective", "reduce"], ["--collective"]),
        (["simulate", "a.ni.json", "--size", "1KiB"], ["a.ni.json", "weft packets"]),
        (["verify", "a.ni.json"], ["a.ni.json", "weft packets"]),
        (["export", "a.ni.json", "-o", "b.json"], ["a.ni.json", "weft packets"]),
        (["export", "ring:4", "--algorithm", "ring", "-o", "b.ni.json"], ["--size"]),
        (
            ["export", "ring:4", "--algorithm", "ring", "-o", "b.json", "--ports", "2"],
            ["--ports", "ni-table"],
        ),
        (["export", "ring:4", "--algorithm", "ring", "-o", "b.json", "--size", "1KiB"], ["--size", "plan"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_bad_use_is_one_line(weft: Run, words: list[str], fragments: list[str]) -> None:
    weft("export", *BUILD, "-o", "a.ni.json")
    assert_refused(weft(*words), *fragments)


@pytest.mark.parametrize(
    ("before", "after", "fragments"),
    [
        ('"version": 1', '"version": 2', ["version", "reads 1"]),
        ('"ports": 4', '"ports": 0', ["ports", ">= 1"]),
        ('"ports": 4', '"ports": 1', ["ranks[", "port is"]),
        ('"steps": 9', '"steps": 3', ["ranks[", "step is 3"]),
        ('"reduce"', '"redcue"', ["ranks[0][0][1]", "redcue"]),
        ('"ranks": [\n', '"ranks": [\n [],\n', ["ranks", "17 tables"]),
        (" ]\n}", "", ["truncated"]),
    ],
)
def test_a_broken_table_is_one_line_with_its_place(
    weft: Run, before: str, after: str, fragments: list[str]
) -> None:
    weft("export", *BUILD, "-o", "a.ni.json")
    text = Path("a.ni.json").read_text("utf-8")
    assert before in text
    Path("a.ni.json").write_text(text.replace(before, after, 1), "utf-8")
    assert_refused(weft("packets", "a.ni.json"), "a.ni.json", *fragments)


def test_the_authors_trees_run_and_are_written_from_the_command_line(weft: Run) -> None:
    build = (TORUS, "--algorithm", "multitree:paper_order=true", "--size", "32KiB")
    schedule = registry.find("multitree").build(load_topology(TORUS), "all_reduce", paper_order=True)
    tables = make_tables(schedule, "32KiB", ports=4)
    document = weft("packets", *build, "--json").document
    assert document["total_cycles"] == simulate_tables(tables).total_cycles
    assert weft("export", *build, "-o", "a.ni.json").code == 0
    assert tables_from_json(Path("a.ni.json").read_bytes()).ranks == tables.ranks


@pytest.mark.parametrize("verb", ["packets", "export", "compare", "simulate"])
def test_help_lists_the_options_of_algorithms(weft: Run, verb: str) -> None:
    text = " ".join(weft(verb, "--help").out.split())
    assert "--algorithm NAME[:OPTION=VALUE,...]" in text
    assert "multitree:trees_per_root=1, paper_order=false" in text


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("multitree:paper=true", "did you mean paper_order?"),
        ("multitree:paper_order=maybe", "paper_order=maybe: expected true or false"),
        ("hdrm:paper_order=true", "hdrm has no options"),
    ],
)
def test_options_that_an_algorithm_does_not_have_are_refused(weft: Run, name: str, fragment: str) -> None:
    assert_refused(weft("packets", TORUS, "--algorithm", name, "--size", "32KiB"), fragment)
