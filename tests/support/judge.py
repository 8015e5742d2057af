"""The brute-force verdict on a schedule and on what the verifier says about it."""

from __future__ import annotations

from collections import Counter

from support.oracle import Hazard, Place, accepts, expected, run
from weft.schedule import Schedule
from weft.schedule.ir import DEFAULT_ROUTE
from weft.verification import VerificationReport


def routes_lead_there(schedule: Schedule) -> bool:
    """Walk every explicit route, transfer by transfer."""
    topology = schedule.topology
    for row in range(schedule.transfers):
        if int(schedule.route[row]) == DEFAULT_ROUTE:
            continue
        node, links = int(schedule.src[row]), schedule.route_of(row)
        if int(schedule.src[row]) == int(schedule.dst[row]) and links:
            return False
        for link in links:
            if int(topology.link_src[link]) != node:
                return False
            node = int(topology.link_dst[link])
        if node != int(schedule.dst[row]):
            return False
    return True


def disagreement(schedule: Schedule, report: VerificationReport) -> str | None:
    """What is wrong with the verifier's report, if anything."""
    computes = accepts(schedule)
    right = computes and routes_lead_there(schedule)
    problem = report.problem
    if report.ok != right:
        return f"verifier says {problem or 'correct'}, brute force says {'correct' if right else 'wrong'}"
    if problem is None:
        return None
    if (problem.check == "route") != computes:
        return (
            f"verifier blames {problem.check}, brute force finds the sums {'right' if computes else 'wrong'}"
        )
    if problem.check == "hazard":
        return _hazard_disagreement(schedule, str(problem))
    if problem.check == "semantics":
        return _sum_disagreement(schedule, report)
    return None


def _hazard_disagreement(schedule: Schedule, problem: str) -> str | None:
    try:
        run(schedule)
    except Hazard:
        return None
    return f"verifier says {problem}, brute force finds no hazard"


def _sum_disagreement(schedule: Schedule, report: VerificationReport) -> str | None:
    """The rank and chunk named must be wrong, and wrong in the way described."""
    problem = report.problem
    assert problem is not None
    assert problem.rank is not None
    assert problem.chunk is not None
    place = Place(problem.rank, 0, problem.chunk)
    try:
        value = run(schedule).get(place)
    except Hazard:
        return None  # in another chunk, which the verifier did not come to
    want = expected(schedule).get(place)
    if want is None or value == want:
        return f"verifier blames {place}, which is right: {problem}"
    if value is None:
        return None if "undefined" in str(problem) else f"{place} is undefined, but: {problem}"
    missing, doubled = sorted(want - value), sorted(value - want)
    text = str(problem)
    for ranks, verb in ((missing, "lacks"), (doubled, "counts")):
        phrase = f"{verb} rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}"
        if bool(ranks) != (verb in text) or (ranks and phrase not in text):
            return f"{place} holds {dict(Counter(value))}, but: {problem}"
    return None
