"""Pages of commands that check something: a schedule, the runtime, a job that failed, a network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.reporting import make_document
from weft.runtime.diagnosis import diagnose, load_flight
from weft.soak.health import ResourceGrowth
from weft.soak.settings import Settings
from weft.soak.tally import SoakFailure, SoakOutcome, Tally
from weft.verification import inspect

FLIGHTS = Path(__file__).parents[1] / "cli" / "flights"


def as_read(document: dict[str, Any]) -> dict[str, Any]:
    """A document as a file of what a command prints with ``--json`` has it."""
    found = json.loads(json.dumps(document, allow_nan=False))
    assert isinstance(found, dict)
    return found


def sections(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sections by title, which are the same from an object's document and from a file of it."""
    found = make_document([document])["sections"]
    assert make_document([as_read(document)])["sections"] == found
    return {section["title"]: section for section in found}


def test_a_verdict_says_what_was_checked_and_where_flows_meet() -> None:
    schedule = weft.algorithms.direct.all_reduce(weft.load_topology("mesh:4"))
    found = inspect(schedule, contention=True)
    shown = sections(found.to_dict())
    facts = dict(shown[f"Verified: {found.title}"]["facts"])
    assert facts["verdict"] == "correct"
    assert facts["digest"] == found.digest
    assert set(found.checks) <= set(facts)
    assert found.contention is not None
    assert found.contention.worst
    rows = [[one.link, str(one.step), str(one.flows)] for one in found.contention.worst]
    assert shown["Where flows meet"]["rows"] == rows


def test_where_no_flows_meet_there_is_no_table() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    shown = sections(inspect(schedule, contention=True).to_dict())
    words = ["No link carries more than one flow in any step."]
    assert shown["Where flows meet"]["paragraphs"] == words


def test_a_wrong_schedule_is_called_wrong_with_its_place() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    chunk = schedule.chunk.copy()
    chunk[5] = (chunk[5] + 1) % schedule.chunks
    found = inspect(replace(schedule, chunk=chunk))
    assert found.problem is not None
    document = make_document([found.to_dict()])
    facts = dict(document["sections"][0]["facts"])
    assert document["title"].endswith(": WRONG")
    assert facts["verdict"] == "WRONG"
    assert facts[found.problem.check] == found.problem.problem


def test_each_schedule_of_a_plan_has_its_verdict() -> None:
    good = inspect(weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))).to_dict()
    wrong = {"check": "semantics", "problem": "rank 1 lacks chunk 2", "transfer": None, "rank": 1, "chunk": 2}
    bad = good | {"verified": False, "problem": wrong}
    table = sections({"plan": "all_reduce on ring:4", "schedules": [good, bad]})[
        "Verified: all_reduce on ring:4"
    ]
    assert [row[1:3] for row in table["rows"]] == [["yes", "-"], ["NO", "semantics: rank 1 lacks chunk 2"]]
    assert table["note"] == "1 of 2 schedules are correct."


@pytest.fixture
def outcome() -> SoakOutcome:
    tally = Tally(seconds=12.5, checked_bytes=3 << 20, episodes=4, joins=2, kills=1, losses=[0.25])
    tally.operations.update(all_reduce=7, barrier=9)
    growth = [
        ResourceGrowth("memory", 2048.0, 12.0, 32768.0, 9),
        ResourceGrowth("threads", 5.0, 0.0, 2.0, 1),
    ]
    return SoakOutcome(Settings(ranks=3, seed=7, seconds=10.0), tally, None, growth)


def test_a_soak_test_shows_operations_kills_and_growth(outcome: SoakOutcome) -> None:
    shown = sections(outcome.to_dict())
    facts = dict(shown["Soak test"]["facts"])
    assert facts["result"] == "no failure found"
    assert facts["done"] == "16 operations, 3 MiB of results compared"
    assert "after 250 ms (median)" in facts["kills"]
    assert shown["Operations"]["rows"] == [["barrier", "9"], ["all_reduce", "7"]]
    assert facts["settings"].startswith("ranks 3, seed 7, time 10 s, ")
    assert not {"None", "True", "False"} & set(facts["settings"].replace(",", "").split())
    growth = shown["Growth of the processes"]
    assert growth["rows"][0] == ["memory, KiB", "2,048", "+12.0", "32,768"]
    assert growth["rows"][1][2] == "-"
    assert growth["note"].startswith("The test was too short")


def test_a_failed_soak_test_says_what_each_rank_was_doing_and_how_to_repeat_it(outcome: SoakOutcome) -> None:
    failure = SoakFailure(
        "hang", "rank 1 waits", 3, {0: "barrier", 1: "all_reduce"}, {0: "TimedOut"}, ["rank 1 it is"]
    )
    found = replace(outcome, failure=failure)
    shown = sections(found.to_dict())
    assert dict(shown["Soak test"]["facts"])["result"] == "FAILED: hang"
    assert shown["Failure"]["paragraphs"] == [
        "hang: rank 1 waits",
        "rank 1 it is",
        f"This repeats it: {found.repeat}",
    ]
    assert shown["Ranks"]["rows"] == [["0", "barrier", "TimedOut"], ["1", "all_reduce", "said nothing"]]


def test_flight_records_show_findings_and_every_rank() -> None:
    found = diagnose(map(load_flight, sorted(map(str, FLIGHTS.iterdir()))))
    shown = sections(found.to_dict())
    assert shown[f"Job {found.job}"]["paragraphs"][: len(found.findings)] == list(found.findings)
    rows = shown["Ranks"]["rows"]
    assert sorted(int(row[0]) for row in rows) == sorted(one.rank for one in found.states)
    waiting = {row[0]: row[5] for row in rows}
    assert all(
        waiting[str(one.rank)] == f"rank {one.waits_for}" for one in found.states if one.waits_for is not None
    )


def test_a_probe_shows_each_link_and_what_is_slower_than_claimed() -> None:
    link = {
        "link": "0->s0", "bandwidth": 4_750_000, "latency_s": 8.5e-6, "measured": 4.752e6, "spread": 0.045,
        "samples": 15, "seen": 37,
    }  # fmt: skip
    document = {
        "topology": "cluster", "links": [link], "rounds": [{"kind": "fabric"}] * 54, "explained": 0.87,
        "notes": ["one thing was assumed"], "slow": [{"link": "0->s0", "claimed": 10**7, "carried": 4.75e6}],
        "judged": 1,
    }  # fmt: skip
    shown = sections(document)
    assert shown["Measured: cluster"]["rows"] == [["0->s0", "4.75MB/s", "4.5 %", "15 of 37", "8.5 us"]]
    assert shown["Measured: cluster"]["note"] == (
        "54 rounds were measured. 87% of them are as this topology predicts."
    )
    assert shown["Slower than claimed"]["rows"] == [["0->s0", "10MB/s", "4.75MB/s", "52 %"]]
    assert shown["Assumed"]["paragraphs"] == ["one thing was assumed"]
    assert "Slower than claimed" not in sections({**document, "slow": None})


def test_a_cluster_beside_a_result_does_not_name_the_page() -> None:
    schedule = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))
    found = inspect(schedule)
    assert make_document([found.to_dict(), schedule.topology])["title"] == f"{found.title}: correct"
    assert make_document([schedule.topology])["title"] == "ring:4"
