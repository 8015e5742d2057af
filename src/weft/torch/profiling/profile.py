"""Look at some iterations of a training loop: where time goes, and how far that is from what was expected."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from weft.errors import InputError
from weft.export.chrome_trace import write_events
from weft.torch.profiling.expected_times import Prediction, predict
from weft.torch.profiling.figures import Figures, reckon
from weft.torch.profiling.profile_trace import RankSpans, events, rank_spans
from weft.torch.profiling.ranks import RankFigures, rank_figures, stragglers
from weft.torch.profiling.recording import Recorder, Recording
from weft.torch.profiling.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from weft.torch.profiling.recording import Fusion, RecordedSpan
    from weft.training import Costs, Layer


class ProfiledRanks(Protocol):
    """The ranks that train together."""

    rank: int
    size: int

    def collect(self, news: bytes) -> list[bytes]:
        """What every rank says, by rank."""


class Observed(Protocol):
    """What a profile needs of an optimizer: `weft.torch.DeAR` has it."""

    @property
    def channel(self) -> ProfiledRanks:
        """Who trains together."""

    @property
    def fusion(self) -> Fusion:
        """The plan in use."""

    @property
    def layers(self) -> Sequence[Layer] | None:
        """As they were measured."""

    @property
    def costs(self) -> Costs | None:
        """Of collectives, as they were measured."""

    def observe(self, listener: Callable[[RecordedSpan], None] | None) -> None:
        """Have a function called with every span."""


def profile(optimizer: Observed, trace: str | Path | None = None, *, steps: int | None = None) -> Profile:
    """Record what `DeAR` does within a ``with`` block, which every rank enters and leaves at the same step.

    An iteration lasts from the end of one step to the end of the next, so the first step only marks where the
    first one begins. While DeAR still tries fusions the recording begins anew with each; wait until
    ``optimizer.tuning`` is False to have all iterations of the block.

    Parameters
    ----------
    optimizer
        A `weft.torch.DeAR`.
    trace
        Rank 0 writes a trace of all ranks to this file at the end of the block, for ui.perfetto.dev.
    steps
        Iterations to record at most; what follows in the block costs nothing.

    Returns
    -------
    Profile
        Its `summary`, `to_json` and `write` are for after the block.

    Examples
    --------
    ::

        with weft.torch.profile(optimizer, "step.json") as seen:
            for _ in range(20):
                train_one_batch()
        print(seen.summary())
    """
    if steps is not None and steps < 1:
        msg = f"steps={steps}: expected at least 1, or None for all of the block"
        raise InputError(msg)
    return Profile(optimizer, None if trace is None else Path(trace), steps)


class Profile:
    """A recording in the making, and what is found in it; made by `profile`."""

    def __init__(self, optimizer: Observed, trace: Path | None, steps: int | None) -> None:
        self._optimizer, self._trace, self._steps = optimizer, trace, steps
        self._recorder: Recorder | None = None
        self._recording: Recording | None = None
        self._ranks: list[RankFigures] = []

    def __enter__(self) -> Self:
        if self._recorder is not None:
            msg = "a profile is for one block; call weft.torch.profile again"
            raise InputError(msg)
        trace = self._trace
        if trace is not None and self._optimizer.channel.rank == 0 and not trace.parent.is_dir():
            msg = f"{trace}: there is no directory {trace.parent}; make it first"
            raise InputError(msg)
        self._recorder = Recorder(lambda: self._optimizer.fusion, self._steps)
        self._optimizer.observe(self._recorder.hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._optimizer.observe(None)
        self._recording = self._freeze()
        if kind is None:  # else other ranks may not come, and nobody is to wait for them
            self._exchange()

    @property
    def recording(self) -> Recording:
        """What happened on this rank.

        Raises
        ------
        InputError
            Before the end of the block.
        """
        if self._recording is None:
            msg = "the profile is not over; use it after its with block"
            raise InputError(msg)
        return self._recording

    @cached_property
    def figures(self) -> Figures:
        """Numbers of this rank."""
        return reckon(self.recording)

    @cached_property
    def prediction(self) -> Prediction | str:
        """What the model of an iteration expects; or why it expects nothing."""
        return predict(self.recording, self.figures)

    @property
    def ranks(self) -> tuple[RankFigures, ...]:
        """Medians of every rank; of this one only where the block was left by an exception."""
        return tuple(self._ranks) or (rank_figures(self.recording, self.figures),)

    def summary(self) -> str:
        """One screen: parts of an iteration, groups, ranks, and the prediction."""
        return summarize(self.recording, self.figures, self.ranks, self.prediction)

    def to_json(self) -> dict[str, Any]:
        """The same as numbers, for ``json.dumps``."""
        recording, prediction = self.recording, self.prediction
        known = isinstance(prediction, Prediction)
        return {
            "rank": recording.rank,
            "policy": recording.fusion.policy,
            "plan": recording.fusion.digest,
            "left_out": recording.left_out,
            "full": recording.full,
            **self.figures.to_dict(),
            "ranks": [one.to_dict() for one in self.ranks],
            "stragglers": stragglers(self.ranks),
            "prediction": prediction.to_dict() if isinstance(prediction, Prediction) else None,
            "no_prediction": None if known else prediction,
        }

    def write(self, path: str | Path) -> None:
        """Write a trace of this rank alone; give `profile` a file name for one of all ranks.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        write_events(events([rank_spans(self.recording)], self._known_prediction()), path)

    def _freeze(self) -> Recording:
        assert self._recorder is not None
        optimizer, recorder = self._optimizer, self._recorder
        return Recording(
            rank=optimizer.channel.rank,
            ranks=optimizer.channel.size,
            fusion=recorder.plan,
            spans=recorder.spans,
            layers=optimizer.layers,
            costs=optimizer.costs,
            left_out=recorder.left_out,
            full=recorder.full,
        )

    def _exchange(self) -> None:
        """Tell the other ranks, and hear from them."""
        recording, channel = self.recording, self._optimizer.channel
        mine = rank_figures(recording, self.figures) if recording.iterations else None
        told = channel.collect(msgspec.json.encode(mine))
        heard = (msgspec.json.decode(news, type=RankFigures | None) for news in told)
        self._ranks = [one for one in heard if one is not None]
        if self._trace is None:
            return
        told = channel.collect(msgspec.json.encode(rank_spans(recording)))
        if channel.rank == 0:
            everybody = [msgspec.json.decode(news, type=RankSpans) for news in told]
            write_events(events(everybody, self._known_prediction()), self._trace)

    def _known_prediction(self) -> Prediction | str:
        return self.prediction if self.recording.iterations else "no iteration is complete"
