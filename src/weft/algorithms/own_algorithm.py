"""An algorithm of the user's own, in the form of a line of the registry: a function, or one schedule.

Whatever takes a line of `weft.algorithms.registry` takes one of these, so that a user's schedule is verified,
simulated, planned with and exported like any other.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from weft.algorithms.keyword_options import format_value, read_options
from weft.algorithms.registry import ROOTED, Algorithm
from weft.errors import InputError, UnsupportedError
from weft.schedule import COLLECTIVES, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.topology import Topology
    from weft.user_script import UserFunction

FILLED_IN: Final = ("collective", "root")
"""Arguments that Weft alone gives to a function that has them; it gives `size_bytes` unless that is given."""

WANTED: Final = "return a weft.Schedule for the topology, such as ScheduleBuilder.build makes"

_MANY_KINDS: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFunction(Algorithm):
    """A function of the user's own that makes schedules.

    Parameters
    ----------
    user
        The function. Its first argument is the topology. An argument called ``collective`` is given the name
        of what is wanted, ``root`` the root of a broadcast or reduce, ``size_bytes`` the size of the buffer
        where that is known. All others are options, and need a default unless they are always given.
    parameters
        Arguments of the function behind the topology.

    Notes
    -----
    A function without an argument ``collective`` offers the collective of the schedule that it returns.
    """

    user: UserFunction
    parameters: Mapping[str, inspect.Parameter] = field(compare=False)
    is_own: bool = True

    @classmethod
    def of(cls, user: UserFunction) -> OwnFunction:
        """Make the line of a function.

        Raises
        ------
        InputError
            If it takes no topology.
        """
        try:
            parameters = list(inspect.signature(user.function).parameters.values())
        except (TypeError, ValueError) as error:
            raise InputError(f"{user.name}: is no function of a topology: {error}") from error
        first = next((one for one in parameters if one.kind is not one.KEYWORD_ONLY), None)
        if first is None or first.kind is first.VAR_KEYWORD:
            raise InputError(f"{user.name}: takes no topology, which is its first argument")
        rest = {one.name: one for one in parameters if one is not first and one.kind not in _MANY_KINDS}
        return cls(
            name=user.name,
            collectives=COLLECTIVES,
            summary=f"the function {user.name}",
            cost=0.0,
            sized="size_bytes" in rest,
            user=user,
            parameters=rest,
        )

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Arguments of the function that are options."""
        return {name: one for name, one in self.parameters.items() if name not in FILLED_IN}

    def with_options(self, text: str) -> OwnFunction:
        """The same with options that were given as ``NAME=VALUE,...``; errors as for `read_options`."""
        given = read_options(self.name, text, self.options)
        words = ",".join(f"{option}={format_value(value)}" for option, value in given.items())
        return replace(self, name=f"{self.name}:{words}", given=tuple(given.items()))

    def looks_at_size(self, collective: str) -> bool:  # noqa: ARG002
        """Whether the function has a parameter of that name."""
        return self.sized

    def offers(self, topology: Topology, collective: str) -> bool:
        """Whether the function makes a schedule of a collective, which is tried."""
        try:
            self.build(topology, collective)
        except UnsupportedError:
            return False
        return True

    def build(
        self,
        topology: Topology,
        collective: str,
        root: int = 0,
        *,
        expected_bytes: int | None = None,
        **options: Any,
    ) -> Schedule:
        """Call the function; parameters as for `Algorithm.build`.

        Raises
        ------
        UnsupportedError
            If the function raises it, or gives a schedule of another collective or root.
        LimitError
            If the function raises it or runs out of memory, with the place in the user's file.
        InputError
            If the function raises anything else, with the place in the user's file, or returns no schedule
            for the topology.
        """
        known: dict[str, Any] = {"collective": collective, "size_bytes": expected_bytes}
        known["root"] = root if collective in ROOTED else None
        named = {
            name: value for name, value in known.items() if name in self.parameters and value is not None
        }
        named |= dict(self.given) | options
        for name, one in self.parameters.items():
            if one.default is one.empty and name not in named:
                advice = "" if name in FILLED_IN else f"give {self.name}:{name}=VALUE, or "
                raise InputError(f"{self.name}: has no value for {name}; {advice}let it have a default")
        with self.user.running(passing=(UnsupportedError,)):
            made = self.user.function(topology, **named)
        if not isinstance(made, Schedule):
            raise InputError(f"{self.name}: returned {type(made).__name__}; {WANTED}")
        check_fit(self.name, made, topology, collective, root)
        return made

    def variants(self, collective: str) -> list[dict[str, Any]]:  # noqa: ARG002
        """No options are tried but those that were given."""
        return [{}]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSchedule(Algorithm):
    """One schedule, which applies to its own topology and collective.

    Parameters
    ----------
    schedule
        The schedule.
    """

    schedule: Schedule
    is_own: bool = True

    @classmethod
    def of(cls, schedule: Schedule, name: str | None = None, max_work: float | None = None) -> OwnSchedule:
        """Make the line of a schedule.

        Parameters
        ----------
        schedule
            The schedule.
        name
            By default its algorithm's.
        max_work
            Operations that verifying it may take: a file may hold anything.
        """
        name = f"schedule:{schedule.algorithm}" if name is None else name
        return cls(
            name=name,
            collectives=(schedule.collective,),
            summary=f"the schedule {name}",
            cost=0.0,
            max_work=max_work,
            schedule=schedule,
        )

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """None: a schedule is made already."""
        return {}

    def build(
        self,
        topology: Topology,
        collective: str,
        root: int = 0,
        *,
        expected_bytes: int | None = None,  # noqa: ARG002
        **options: Any,  # noqa: ARG002
    ) -> Schedule:
        """Give the schedule; parameters as for `Algorithm.build`.

        Raises
        ------
        UnsupportedError
            If it is for another topology, collective or root.
        """
        check_fit(self.name, self.schedule, topology, collective, root)
        return self.schedule

    def variants(self, collective: str) -> list[dict[str, Any]]:  # noqa: ARG002
        """There is one schedule."""
        return [{}]


def check_fit(name: str, schedule: Schedule, topology: Topology, collective: str, root: int) -> None:
    """Raise an `UnsupportedError` unless a schedule is for a topology, a collective and a root."""
    if schedule.collective != collective:
        raise UnsupportedError(name, f"is a schedule of {schedule.collective}, not of {collective}")
    if schedule.topology.digest != topology.digest:
        theirs, ours = (f"{one.name} (digest {one.digest[:12]})" for one in (schedule.topology, topology))
        raise UnsupportedError(name, f"is a schedule for {theirs}, not for {ours}")
    if schedule.root not in (None, root):
        raise UnsupportedError(name, f"has the root {schedule.root}, not {root}")
