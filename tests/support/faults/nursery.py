"""Starts the ranks of fault trials from a pool, each with its output in the folder of its trial."""

from __future__ import annotations

import os
from pathlib import Path

from support.rank_pool import PooledRank, RankPool


class Nursery(RankPool):
    """A pool of ranks that run the programs of this package; parameters as there."""

    def start_program(
        self,
        folder: Path,
        rank: int,
        *,
        program: str = "rank",
        variables: dict[str, str] | None = None,
        network: str = "",
        limits: dict[str, int] | None = None,
    ) -> PooledRank:
        """Start a program in the folder of a trial.

        Parameters
        ----------
        program
            Name of a module of this package.
        variables
            Added to the environment.
        network, limits
            As for `RankPool.start`.
        """
        output = os.open(folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return self.start(
                f"support.faults.{program}",
                [str(folder), str(rank)],
                folder=folder,
                variables=os.environ | (variables or {}),
                output=output,
                network=network,
                limits=limits,
                finalise=True,
            )
        finally:
            os.close(output)
