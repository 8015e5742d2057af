"""Settings of a soak test, which the controller sends to the ranks."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from weft.runtime.transport.rank_transport import TransportName

MOST_RANKS: Final = 16
"""Ranks of a soak test: so many small numbers still have an exact sum in every type."""

DEFAULT_TIMEOUT_S: Final = 30.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of one soak test.

    Parameters
    ----------
    ranks
        Processes, at least 2.
    seed
        Everything that is random comes from it.
    seconds
        How long episodes are started; the last one is finished.
    transport
        As for `weft.init`.
    timeout
        Seconds for each operation; one that takes longer is a hang.
    kills
        Whether some episodes end with a rank that is killed.
    start
        Number of the first episode.
    episodes
        How many episodes at most; None for as many as there is time for.
    """

    ranks: int
    seed: int
    seconds: float
    transport: TransportName = "auto"
    timeout: float = DEFAULT_TIMEOUT_S
    kills: bool = True
    start: int = 0
    episodes: int | None = None

    def command(self, start: int) -> str:
        """Command that repeats the test from an episode on.

        Examples
        --------
        >>> Settings(ranks=3, seed=7, seconds=60.0).command(12)
        'weft soak --seconds 60 --ranks 3 --seed 7 --start 12'
        """
        words = ["weft", "soak", "--seconds", f"{self.seconds:g}", "--ranks", str(self.ranks)]
        words += ["--seed", str(self.seed), "--start", str(start)]
        if self.transport != "auto":
            words += ["--transport", self.transport]
        if self.timeout != DEFAULT_TIMEOUT_S:
            words += ["--timeout", f"{self.timeout:g}"]
        if not self.kills:
            words.append("--no-kills")
        return shlex.join(words)
