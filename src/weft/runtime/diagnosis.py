"""Diagnosis from the flight records of a job: which rank waited for which, and which held up the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft import limits
from weft.errors import FormatError, InputError, name_ranks
from weft.files import read_bytes, standard_input
from weft.runtime.flight_recorder import FORMAT, CommunicatorRecord, FlightRecord, RecordedOperation
from weft.runtime.transport.heartbeats import FROZEN_AFTER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_FROZEN_S: Final = 0.9 * FROZEN_AFTER_MS / 1000
"""Silence that a rank was given up for; what is known of it may be a little older than the verdict."""

_MOST_EARLIER: Final = 8


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
        ``under way``, ``failed``, ``finished``, ``idle``, or ``closed`` if the rank has left.
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
        Of the communicator that it is about, the latest in trouble, as they are numbered in the job.
    states
        Of those ranks that have left a record of it.
    absent
        Ranks that have left none.
    culprits
        Ranks that held the others up, as far as the records tell.
    findings
        What they tell, a sentence each, the most important first.
    earlier
        What ended communicators before, a sentence each, the latest first.
    left_out
        Records that contradict newer ones and were left out, a sentence each.
    other_jobs
        Names of older jobs that records were given of.
    """

    job: str
    ranks: tuple[int, ...]
    states: tuple[RankState, ...]
    absent: tuple[int, ...]
    culprits: tuple[int, ...]
    findings: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    other_jobs: tuple[str, ...] = ()

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
    """Put the records of a job's ranks together; of several jobs, those of the latest.

    Raises
    ------
    InputError
        If there is none, or two are of one rank.
    """
    job, given, other_jobs = _latest_job(list(records))
    by_rank: dict[int, FlightRecord] = {}
    for record in given:
        if record.rank in by_rank:
            msg = f"two flight records are of rank {record.rank}; give one for each rank of one job"
            raise InputError(msg)
        by_rank[record.rank] = record
    found, left_out = _leave_out_stale(by_rank)
    ranks, flights, earlier = _choose(found)
    states = {rank: _state(found[rank], flight) for rank, flight in sorted(flights.items())}
    absent = tuple(rank for rank in ranks if rank not in flights)
    findings: list[str] = []
    _find_starting(found, findings)
    culprits = _find_mismatch(states, flights, findings)
    culprits += _find_absent(flights, [rank for rank in absent if rank not in found], absent, findings)
    culprits += _find_holdups(states, findings)
    culprits += _find_blamed(flights, findings)
    if not findings:
        findings.append("nobody waited for anybody, and nothing had failed")
    return Diagnosis(
        job=job,
        ranks=ranks,
        states=tuple(states.values()),
        absent=absent,
        culprits=tuple(dict.fromkeys(culprits)),
        findings=tuple(findings),
        earlier=earlier,
        left_out=left_out,
        other_jobs=other_jobs,
    )


def _latest_job(given: Sequence[FlightRecord]) -> tuple[str, list[FlightRecord], tuple[str, ...]]:
    """Name and records of the job that wrote the latest record, and the names of the others, latest first."""
    if not given:
        msg = "there is no flight record; ranks write them when an operation fails, and on SIGUSR2"
        raise InputError(msg)
    written: dict[str, float] = {}
    for record in given:
        written[record.job] = max(written.get(record.job, record.written_s), record.written_s)
    job, *others = sorted(written, key=lambda name: (-written[name], name))
    return job, [record for record in given if record.job == job], tuple(others)


def _leave_out_stale(by_rank: Mapping[int, FlightRecord]) -> tuple[dict[int, FlightRecord], tuple[str, ...]]:
    """Records of one start of the job, the latest; and what is said of those of earlier starts.

    A job that is started again under the same name overwrites the records of the ranks that write one again.
    """
    found: dict[int, FlightRecord] = {}
    known: dict[int, set[int]] = {}
    left_out: list[str] = []
    for record in sorted(by_rank.values(), key=lambda one: -one.written_s):
        named = {pair for flight in record.flights for pair in zip(flight.ranks, flight.pids, strict=False)}
        rivals = known.get(record.rank, set()) - {record.pid}
        if rivals:
            left_out.append(
                f"rank {record.rank}: its record is of pid {record.pid}, and newer records know "
                f"rank {record.rank} as pid {', '.join(map(str, sorted(rivals)))}, "
                "so it is from an earlier start of the job"
            )
        elif any(rank in found and found[rank].pid != pid for rank, pid in named):
            left_out.append(
                f"rank {record.rank}: its record names other processes than newer ones do, "
                "so it is from an earlier start of the job"
            )
        else:
            found[record.rank] = record
            for rank, pid in named:
                known.setdefault(rank, set()).add(pid)
    return found, tuple(left_out)


def _choose(
    found: Mapping[int, FlightRecord],
) -> tuple[tuple[int, ...], dict[int, CommunicatorRecord], tuple[str, ...]]:
    """Ranks of the communicator in trouble, each rank's record of it, and what ended others before it.

    It is the one with the latest operation among those that failed or waited and that nobody has left by
    `shrink`: what such a one suffered from, the job has survived.
    """
    groups: dict[object, dict[int, CommunicatorRecord]] = {}
    for rank, record in sorted(found.items()):
        for flight in record.flights:
            name = flight.identity or (flight.ranks, flight.pids)
            groups.setdefault(name, {})[rank] = flight
    if not groups:
        return tuple(sorted(found)), {}, ()

    def trouble(group: Mapping[int, CommunicatorRecord]) -> tuple[bool, bool, float, int]:
        flights = group.values()
        return (
            all(flight.ended != "shrunk" for flight in flights),
            any(flight.ended is None and (flight.failure or flight.waiting) for flight in flights),
            _latest(group),
            len(next(iter(flights)).ranks),
        )

    chosen = max(groups.values(), key=trouble)
    before = [group for group in groups.values() if group is not chosen and _latest(group) <= _latest(chosen)]
    failed = sorted(before, key=_latest, reverse=True)
    earlier = [line for line in map(_tell_earlier, failed) if line is not None]
    return next(iter(chosen.values())).ranks, chosen, tuple(earlier[:_MOST_EARLIER])


def _latest(group: Mapping[int, CommunicatorRecord]) -> float:
    """When the latest operation of a communicator began."""
    return max((flight.operations[-1].began_s for flight in group.values() if flight.operations), default=0.0)


def _tell_earlier(group: Mapping[int, CommunicatorRecord]) -> str | None:
    """What ended a communicator, as most of its ranks say; None if nothing has."""
    failures = Counter(flight.failure for flight in group.values() if flight.failure is not None)
    if not failures:
        return None
    flight = next(iter(group.values()))
    ((failure, _),) = failures.most_common(1)
    blamed = next(one.blamed for one in group.values() if one.failure == failure)
    renumbered = blamed in flight.ranks and flight.ranks.index(blamed) != blamed
    of_job = f" (rank {blamed} of the job)" if renumbered else ""
    return f"communicator of {name_ranks(flight.ranks)}: {failure}{of_job}"


def _state(record: FlightRecord, flight: CommunicatorRecord) -> RankState:
    last = flight.operations[-1] if flight.operations else None
    wait = flight.waiting
    if flight.ended is not None:
        state = "closed"
        since = 0.0 if last is None else record.written_s - (last.ended_s or last.began_s)
    elif last is None:
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


def _find_starting(found: Mapping[int, FlightRecord], findings: list[str]) -> None:
    """Ranks that had not come out of `weft.init`."""
    phases: dict[str, list[int]] = {}
    for rank, record in sorted(found.items()):
        if record.starting is not None:
            phases.setdefault(record.starting, []).append(rank)
    findings += [
        f"{name_ranks(ranks)} had not come out of weft.init: {phase}" for phase, ranks in phases.items()
    ]


def _find_mismatch(
    states: Mapping[int, RankState], flights: Mapping[int, CommunicatorRecord], findings: list[str]
) -> list[int]:
    """Ranks that were in another operation than the others, at the earliest number where that is so."""
    marks: dict[int, dict[str, list[int]]] = {}
    known: dict[tuple[int, str], RecordedOperation] = {}
    for rank, flight in flights.items():
        for one in flight.operations:
            marks.setdefault(one.number, {}).setdefault(one.fingerprint, []).append(rank)
            known[one.number, one.fingerprint] = one
    number = next((n for n in sorted(marks) if len(marks[n]) > 1), None)
    # Sends and receives concern two ranks only: their numbers differ from rank to rank.
    if number is None or all(states[rank].failure is None for rank in states):
        return []
    groups = sorted(marks[number].items(), key=lambda group: (len(group[1]), group[1]))
    told = _tell_apart([known[number, mark] for mark, _ in groups])
    each = zip(groups[:8], told, strict=False)
    sides = "; ".join(f"{name_ranks(ranks)} in {name}" for (_, ranks), name in each)
    findings.append(f"the ranks were in different operations at #{number}: {sides}")
    smallest = len(groups[0][1])
    return groups[0][1] if smallest < len(groups[-1][1]) else []


def _tell_apart(operations: Sequence[RecordedOperation]) -> list[str]:
    """Name operations that are not the same, each by as much as tells it from the others."""
    names = [f"{one.collective} of {one.size_bytes:,} bytes" for one in operations]
    parts = [[one.algorithm, *filter(None, one.details.split(", "))] for one in operations]
    told = []
    for name, mine in zip(names, parts, strict=True):
        alike = [set(other) for text, other in zip(names, parts, strict=True) if text == name]
        own = [part for part in mine if any(part not in other for other in alike)]
        if len(alike) > 1:
            name += f" ({', '.join(own) or 'with arguments that the record does not tell'})"
        told.append(name)
    return told


def _find_absent(
    flights: Mapping[int, CommunicatorRecord],
    unrecorded: Sequence[int],
    absent: Sequence[int],
    findings: list[str],
) -> list[int]:
    """Ranks without a record of the communicator that other ranks waited for, or have lost."""
    held_up = []
    for rank in absent:
        waiters = [
            other for other, flight in flights.items() if flight.waiting and flight.waiting.rank == rank
        ]
        # Who has lost it need not have waited for it: it may have been gone when the operation began.
        losers = [other for other, flight in flights.items() if _has_lost(flight, rank)]
        if waiters or losers:
            held_up.append(rank)
            lack = "of which there is no record" if rank in unrecorded else "whose record is from before that"
            fate = _guess_fate(rank, flights.values())
            did = f"{name_ranks(waiters)} waited for" if waiters else f"{name_ranks(losers)} lost"
            findings.append(f"{did} rank {rank}, {lack}: {fate}")
    return held_up


def _has_lost(flight: CommunicatorRecord, rank: int) -> bool:
    return flight.blamed == rank and flight.failure_kind == "PeerLost"


def _guess_fate(rank: int, flights: Iterable[CommunicatorRecord]) -> str:
    """What became of a rank that has left no record, from what the others know of it."""
    known = list(flights)
    lost = [one for one in known if _has_lost(one, rank)]
    silent_s = max(
        (one.waiting.silent_s for one in known if one.waiting and one.waiting.rank == rank), default=0
    )
    if reasons := Counter(one.reason for one in lost if one.reason):
        return reasons.most_common(1)[0][0]
    if silent_s >= _FROZEN_S:
        return f"silent for {silent_s:.1f} s, it is frozen, or its machine or network is down"
    if lost:
        return "its process was killed or has crashed"
    if silent_s:
        return f"silent for {silent_s:.1f} s, it is frozen, or overloaded"
    return "it was alive, but slow, and was not asked for a record"


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
        if last.state == "closed":
            doing = f"had closed its communicator after #{last.number}"
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
