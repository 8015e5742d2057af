"""Forms of the documents of commands that check something: a schedule, the runtime, a job or a network.

As in `weft.reporting.result_forms`, fields that a report does not need are not read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.reporting.form_numbers import Count, Number, Seconds


class ProblemRow(msgspec.Struct, frozen=True):
    """What the verifier has against a schedule."""

    check: str
    problem: str
    transfer: Count | None = None
    rank: Count | None = None
    chunk: Count | None = None


class MeetingRow(msgspec.Struct, frozen=True):
    """Flows that meet on one link in one step."""

    step: Count
    link: str
    flows: Count


class ContentionForm(msgspec.Struct, frozen=True):
    """What ``weft verify --contention --json`` counts."""

    max_flows: Count
    contended_steps: Count
    worst: list[MeetingRow]
    busiest_link: str | None = None


class CheckedForm(msgspec.Struct, frozen=True):
    """``weft verify --json`` of a schedule."""

    schedule: str
    verified: bool
    checks: list[str]
    problem: ProblemRow | None = None
    slots: Count | None = None
    digest: str = ""
    ranks: Count = 0
    chunks: Count = 0
    steps: Count = 0
    transfers: Count = 0
    contention: ContentionForm | None = None


class CheckedPlanForm(msgspec.Struct, frozen=True):
    """``weft verify --json`` of a plan."""

    plan: str
    schedules: list[CheckedForm]


class GrowthRow(msgspec.Struct, frozen=True):
    """How much more of something the processes of a soak test used in the end."""

    what: str
    level: Number
    growth: Number
    bound: Number
    judged: bool


class SoakFailureRow(msgspec.Struct, frozen=True):
    """What a soak test found."""

    kind: str
    text: str
    steps: dict[str | int, str] = {}
    said: dict[str | int, str] = {}
    findings: list[str] = []


class SoakedForm(msgspec.Struct, frozen=True):
    """``weft soak --json``."""

    settings: dict[str, Any]
    seconds: Seconds
    operations: dict[str, Count]
    growth: list[GrowthRow]
    failure: SoakFailureRow | None
    checked_bytes: Count = 0
    episodes: Count = 0
    joins: Count = 0
    kills: Count = 0
    loss_median_seconds: Seconds | None = None
    loss_worst_seconds: Seconds | None = None
    repeat: str | None = None


class RankStateRow(msgspec.Struct, frozen=True):
    """Where one rank of ``weft explain --json`` was."""

    rank: Count
    state: str
    host: str = ""
    number: Count = 0
    collective: str = ""
    since_s: Seconds = 0.0
    waits_for: Count | None = None
    step: Count | None = None
    failure: str | None = None


class ExplainedForm(msgspec.Struct, frozen=True):
    """``weft explain --json``."""

    job: str
    ranks: list[Count]
    states: list[RankStateRow]
    findings: list[str]
    absent: list[Count] = []
    earlier: list[str] = []
    left_out: list[str] = []


class ProbedLinkRow(msgspec.Struct, frozen=True):
    """One link of ``weft probe --json``."""

    link: str
    bandwidth: Count
    latency_s: Seconds = 0.0
    measured: Number | None = None
    spread: Number | None = None
    samples: Count = 0
    seen: Count = 0


class SlowLinkRow(msgspec.Struct, frozen=True):
    """A link that is slower than ``weft probe --verify`` was told."""

    link: str
    claimed: Count
    carried: Number


class ProbedForm(msgspec.Struct, frozen=True):
    """``weft probe --json``."""

    topology: str
    links: list[ProbedLinkRow]
    rounds: list[dict[str, Any]]
    notes: list[str] = []
    explained: Number | None = None
    slow: list[SlowLinkRow] | None = None
    judged: Count | None = None
