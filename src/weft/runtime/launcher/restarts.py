"""Start a job again when it has failed, so that its script can go on from its own checkpoint.

Every attempt is a job of its own: all ranks are new processes, with a new port and a new secret, so that
nothing of the attempt before can reach them. ``WEFT_ATTEMPT`` tells the script which attempt it is, from 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime.launcher.launch import JobResult

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
"""The pause before a restart doubles from the first to the longest: a failure may pass by itself."""

USE_CODES: Final = frozenset({2, 126, 127})
"""Exit codes of bad use and of programs that cannot be started, which fail the same way each time."""


def launch_with_restarts(
    launch: Callable[..., JobResult], restarts: int, pause: Callable[[str, float], None]
) -> list[JobResult]:
    """Run a job, and run it again when it has failed.

    Parameters
    ----------
    launch
        Runs the job once: `weft.runtime.launcher.launch.launch` with all its arguments but `attempt`.
    restarts
        How often to start it again at most.
    pause
        Called before each restart with a line that says what failed and what starts, and with the seconds to
        wait. No process of the job is left then.

    Returns
    -------
    list[JobResult]
        One for each attempt; the last is how the job ended.
    """
    attempts: list[JobResult] = []
    seconds = FIRST_PAUSE_S
    while True:
        result = launch(attempt=len(attempts))
        attempts.append(result)
        if len(attempts) > restarts or not may_restart(result):
            return attempts
        pause(f"{result.failure}; restart {len(attempts)} of {restarts} in {seconds:g} s", seconds)
        seconds = min(2 * seconds, LONGEST_PAUSE_S)


def may_restart(result: JobResult) -> bool:
    """Whether another attempt may end better: not after bad use, and not if the job was told to stop."""
    return result.signal is None and result.failure is not None and result.exit_code not in USE_CODES
