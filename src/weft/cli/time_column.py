"""The times beside a progress bar: how long the work has taken, and how long it may still take."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import ProgressColumn
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Task


class TimeColumn(ProgressColumn):
    """Time elapsed, and time to go where the work so far gives a number."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """Write the times of the work, in whole seconds."""
        return Text(describe_times(task.elapsed, task.time_remaining), style="progress.elapsed")


def describe_times(elapsed_s: float | None, to_go_s: float | None) -> str:
    """Name each of the times that is known.

    Examples
    --------
    >>> describe_times(111.4, None), describe_times(111.4, 30)
    ('0:01:51 elapsed', '0:01:51 elapsed, 0:00:30 to go')
    """
    known = ((elapsed_s, "elapsed"), (to_go_s, "to go"))
    return ", ".join(f"{timedelta(seconds=int(time))} {what}" for time, what in known if time is not None)
