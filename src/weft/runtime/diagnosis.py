"""Diagnosis from the flight records of a job: which rank waited for which, and which held up the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft import limits
from weft.errors import FormatError, InputError, name_ranks
from weft.files import read_bytes, standard_input
from weft.runtime.flight_recorder import FORMAT, CommunicatorRecord, FlightRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class RankState:
    """Where one rank was when its record was written.

    Parameters
    ----------
    rank
        In the job.
    host, pid
        Of its process.
    number, collective, algorithm
        Its latest operation; 0 and empty if it had begun none.
    state
        ``under way``, ``failed``, ``finished`` or ``idle``.
    since_s
        Seconds since that operation began, or ended if it was over, until the record was written.
    waits_for
        The rank that it waited for.
    waited_s, silent_s, step
        For how long, how long that rank had been silent, and in which step of the schedule.
    failure
        What it raised.
    """

    rank: int
    host: str
    pid: int
    number: int
    collective: str
    algorithm: str
    state: str
    since_s: float
    waits_for: int | None
    waited_s: float | None
    silent_s: float
    step: int | None
    failure: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What the records of a job say together.

    Parameters
    ----------
    job
        Its name.
    ranks
        Of the communicator that it is about, as they are numbered in the job.
    states
        Of those ranks that have left a record.
    absent
        Ranks that have left none.
    culprits
        Ranks that held the others up, as far as the records tell.
    findings
        What they tell, a sentence each, the most important first.
    """

    job: str
    ranks: tuple[int, ...]
    states: tuple[RankState, ...]
    absent: tuple[int, ...]
    culprits: tuple[int, ...]
    findings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def load_flight(path: str | Path) -> FlightRecord:
    """Read a flight record; ``"-"`` is standard input.

    Raises
    ------
    FormatError
        If it is not one.
    """
    name, place = ("<stdin>", standard_input()) if path == "-" else (str(path), Path(path))
    data = read_bytes(name, place, 2 * limits.MAX_FLIGHT_BYTES)
    try:
        record = msgspec.json.decode(data, type=FlightRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(name, f"not a flight record: {error}") from error
    if record.format != FORMAT:
        raise FormatError(name, f"format {record.format[:40]!r}; this Weft reads {FORMAT}")
    return record


def diagnose(records: Iterable[FlightRecord]) -> Diagnosis:
    """Put the records of a job's ranks together.

    Raises
    ------
    InputError
        If there is none, or they are of several jobs, or two are of one rank.
    """
    given = list(records)
    jobs = {record.job for record in given}
    if len(jobs) != 1:
        names = ", ".join(f"flight-{job}-r*.json" for job in sorted(jobs))[:200]
        msg = f"flight records of {len(jobs)} jobs; give those of one, such as {names}"
        raise InputError(msg)
    found: dict[int, FlightRecord] = {}
    for record in given:
        if record.rank in found:
            msg = f"two flight records are of rank {record.rank}; give one for each rank of one job"
            raise InputError(msg)
        found[record.rank] = record
    ranks, flights = _choose(found)
    states = {rank: _state(found[rank], flight) for rank, flight in sorted(flights.items())}
    absent = tuple(rank for rank in ranks if rank not in found)
    findings: list[str] = []
    culprits = _find_mismatch(states, flights, findings)
    culprits += _find_absent(states, absent, findings)
    culprits += _find_holdups(states, findings)
    culprits += _find_blamed(flights, findings)
    if not findings:
        findings.append("nobody waited for anybody, and nothing had failed")
    return Diagnosis(
        jobs.pop(), ranks, tuple(states.values()), absent, tuple(dict.fromkeys(culprits)), tuple(findings)
    )


def _choose(found: Mapping[int, FlightRecord]) -> tuple[tuple[int, ...], dict[int, CommunicatorRecord]]:
    """Ranks of the communicator in trouble, the largest that failed or waited; each rank's record of it."""
    known = [flight for record in found.values() for flight in record.flights]
    if not known:
        return tuple(sorted(found)), {}
    worst = max(
        known,
        key=lambda flight: (flight.failure is not None or flight.waiting is not None, len(flight.ranks)),
    )
    flights: dict[int, CommunicatorRecord] = {}
    for rank, record in found.items():
        mine = [flight for flight in record.flights if flight.ranks == worst.ranks]
        if mine:
            flights[rank] = max(mine, key=lambda flight: (flight.failure is not None, len(flight.operations)))
    return worst.ranks, flights


def _state(record: FlightRecord, flight: CommunicatorRecord) -> RankState:
    last = flight.operations[-1] if flight.operations else None
    wait = flight.waiting
    if last is None:
        state, since = "idle", 0.0
    elif last.ended_s is not None:
        state, since = "finished", record.written_s - last.ended_s
    else:
        state, since = ("failed" if flight.failure else "under way"), record.written_s - last.began_s
    return RankState(
        rank=record.rank,
        host=record.host,
        pid=record.pid,
        number=last.number if last else 0,
        collective=last.collective if last else "",
        algorithm=last.algorithm if last else "",
        state=state,
        since_s=round(max(0.0, since), 3),
        waits_for=wait.rank if wait is not None and wait.rank >= 0 else None,
        waited_s=wait.seconds if wait is not None else None,
        silent_s=wait.silent_s if wait is not None else 0.0,
        step=wait.step if wait is not None else None,
        failure=flight.failure,
    )


def _find_mismatch(
    states: Mapping[int, RankState], flights: Mapping[int, CommunicatorRecord], findings: list[str]
) -> list[int]:
    """Ranks that were in another operation than the others, at the earliest number where that is so."""
    marks: dict[int, dict[str, list[int]]] = {}
    names: dict[tuple[int, str], str] = {}
    for rank, flight in flights.items():
        for one in flight.operations:
            marks.setdefault(one.number, {}).setdefault(one.fingerprint, []).append(rank)
            names[one.number, one.fingerprint] = f"{one.collective} of {one.size_bytes:,} bytes"
    number = next((n for n in sorted(marks) if len(marks[n]) > 1), None)
    # Sends and receives concern two ranks only: their numbers differ from rank to rank.
    if number is None or all(states[rank].failure is None for rank in states):
        return []
    groups = sorted(marks[number].items(), key=lambda group: (len(group[1]), group[1]))
    told = "; ".join(f"{name_ranks(ranks)} in {names[number, mark]}" for mark, ranks in groups[:8])
    findings.append(f"the ranks were in different operations at #{number}: {told}")
    smallest = len(groups[0][1])
    return groups[0][1] if smallest < len(groups[-1][1]) else []


def _find_absent(states: Mapping[int, RankState], absent: tuple[int, ...], findings: list[str]) -> list[int]:
    """Ranks without a record that other ranks waited for."""
    wanted = {rank: [one.rank for one in states.values() if one.waits_for == rank] for rank in absent}
    for rank, waiters in wanted.items():
        if waiters:
            findings.append(
                f"{name_ranks(waiters)} waited for rank {rank}, of which there is no record: "
                "it was killed, is frozen, or was not asked for one"
            )
    return [rank for rank, waiters in wanted.items() if waiters]


def _find_holdups(states: Mapping[int, RankState], findings: list[str]) -> list[int]:
    """Ranks at the end of the chains of waiting, and ranks that wait for each other."""
    culprits: list[int] = []
    waiters = Counter(one.waits_for for one in states.values() if one.waits_for is not None)
    for rank in sorted(waiters):
        last = states.get(rank)
        if last is None or last.waits_for is not None:
            continue
        who = name_ranks(one.rank for one in states.values() if one.waits_for == rank)
        did = f"had {last.state} #{last.number} ({last.collective}) {last.since_s:.1f} s before"
        doing = "had begun no operation" if last.state == "idle" else did
        findings.append(f"{who} waited for rank {rank}, which {doing} and waited for nobody")
        culprits.append(rank)
    for rank in states:
        ring = _ring_from(rank, states)
        if ring and rank == min(ring):
            findings.append(f"{name_ranks(ring)} waited for each other")
            culprits += ring
    return culprits


def _ring_from(rank: int, states: Mapping[int, RankState]) -> list[int]:
    """Ranks of the ring of waiting that a rank is part of; empty if it is in none."""
    path = [rank]
    while (one := states.get(path[-1])) is not None and one.waits_for is not None:
        if one.waits_for == rank:
            return path
        if one.waits_for in path:
            return []
        path.append(one.waits_for)
    return []


def _find_blamed(flights: Mapping[int, CommunicatorRecord], findings: list[str]) -> list[int]:
    """Ranks that the others' errors name."""
    votes = Counter(flight.blamed for flight in flights.values() if flight.blamed is not None)
    for rank, count in votes.most_common(3):
        errors = "error names" if count == 1 else "errors name"
        findings.append(f"{count} {errors} rank {rank}")
    return [rank for rank, _ in votes.most_common(1)]
