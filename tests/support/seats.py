"""Ranks of a pool on the hosts of an emulated cluster: for tests that are not about how ranks are started."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from support.jobs import JOB_S, finish, start_script
from weft.lab.network import Network


def run_seated(network: Network, script: Path, *words: str, timeout: float = JOB_S) -> list[str]:
    """What the ranks of a job print, by rank, each in its namespace; all must end well."""
    seats = network.seats()
    place = {"WEFT_SIZE": str(len(seats)), "WEFT_JOB": "test", "WEFT_SECRET": secrets.token_hex(32)}
    ranks = [
        start_script(
            script,
            words,
            variables={**os.environ, **place, **seat.variables, "WEFT_RANK": str(rank)},
            network=seat.prefix[-1],
        )
        for rank, seat in enumerate(seats)
    ]
    ended = finish(ranks, timeout)
    assert [code for code, _ in ended] == [0] * len(seats), "\n".join(output for _, output in ended)
    return [output for _, output in ended]
