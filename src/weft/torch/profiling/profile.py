"""Profiles of training iterations: where their time goes, and how that compares with the prediction."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from weft.errors import InputError
from weft.export.chrome_trace import write_events
from weft.torch.profiling.expected_times import Prediction, predict
from weft.torch.profiling.figures import Figures, RankFigures, compute_figures, rank_figures, stragglers
from weft.torch.profiling.profile_trace import RankSpans, events, rank_spans
from weft.torch.profiling.recording import Recorder, Recording
from weft.torch.profiling.summary import summarize

if TYPE_CHECKING:
    from types import TracebackType

    from weft.torch.dear.optimizer import DeAR


def profile(optimizer: DeAR, trace: str | Path | None = None, *, steps: int | None = None) -> Profile:
    """Profile `DeAR` within a ``with`` block, which every rank enters and leaves at the same step.

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
        raise InputError(f"steps={steps}: expected at least 1, or None for all of the block")
    return Profile(optimizer, None if trace is None else Path(trace), steps)


class Profile:
    """A profile, which records within its ``with`` block; made by `profile`."""

    def __init__(self, optimizer: DeAR, trace: Path | None, steps: int | None) -> None:
        self._optimizer, self._trace, self._steps = optimizer, trace, steps
        self._recorder: Recorder | None = None
        self._recording: Recording | None = None
        self._ranks: list[RankFigures] = []

    def __enter__(self) -> Self:
        if self._recorder is not None:
            raise InputError("a profile is for one block; call weft.torch.profile again")
        trace = self._trace
        if trace is not None and self._optimizer.channel.rank == 0 and not trace.parent.is_dir():
            raise InputError(f"{trace}: there is no directory {trace.parent}; make it first")
        self._recorder = Recorder(lambda: self._optimizer.fusion, self._steps)
        self._optimizer.observe(self._recorder.add)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._optimizer.observe(None)
        self._recording = self._freeze()
        if kind is None:  # else other ranks may be missing, and must not be waited for
            self._exchange_figures()

    @property
    def recording(self) -> Recording:
        """The recording of this rank.

        Raises
        ------
        InputError
            Before the end of the block.
        """
        if self._recording is None:
            raise InputError("the profile is not over; use it after its with block")
        return self._recording

    @cached_property
    def figures(self) -> Figures:
        """The figures of this rank."""
        return compute_figures(self.recording)

    @cached_property
    def prediction(self) -> Prediction | str:
        """The prediction of the model of an iteration, or the reason why there is none."""
        return predict(self.recording, self.figures)

    @property
    def ranks(self) -> tuple[RankFigures, ...]:
        """The medians of all ranks; of this one only where the block was left by an exception."""
        return tuple(self._ranks) or (rank_figures(self.recording, self.figures),)

    def summary(self) -> str:
        """Return one screen of text: parts of an iteration, groups, ranks, and the prediction."""
        return summarize(self.recording, self.figures, self.ranks, self.prediction)

    def to_json(self) -> dict[str, Any]:
        """Return the same as numbers, for ``json.dumps``."""
        recording, prediction = self.recording, self.prediction
        known = prediction if isinstance(prediction, Prediction) else None
        return {
            "rank": recording.rank,
            "policy": recording.fusion.policy,
            "plan": recording.fusion.digest,
            "left_out": recording.left_out,
            "full": recording.full,
            **self.figures.to_dict(),
            "ranks": [msgspec.structs.asdict(one) for one in self.ranks],
            "stragglers": stragglers(self.ranks),
            "prediction": None if known is None else known.to_dict(),
            "no_prediction": prediction if known is None else None,
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

    def _exchange_figures(self) -> None:
        """Exchange figures with the other ranks, and write the trace of all."""
        recording, channel = self.recording, self._optimizer.channel
        mine = rank_figures(recording, self.figures) if recording.iterations else None
        received = channel.collect(msgspec.json.encode(mine))
        figures = (msgspec.json.decode(message, type=RankFigures | None) for message in received)
        self._ranks = [one for one in figures if one is not None]
        if self._trace is None:
            return
        received = channel.collect(msgspec.json.encode(rank_spans(recording)))
        if channel.rank == 0:
            spans = [msgspec.json.decode(message, type=RankSpans) for message in received]
            write_events(events(spans, self._known_prediction()), self._trace)

    def _known_prediction(self) -> Prediction | str:
        return self.prediction if self.recording.iterations else "no iteration is complete"
