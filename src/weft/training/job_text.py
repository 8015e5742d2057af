"""A job of a sweep as text that a worker reads, wherever it is."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.algorithms import registry
from weft.algorithms.registry import Algorithm
from weft.algorithms.resolver import resolve_algorithm
from weft.errors import InputError
from weft.planning.point_text import (
    AlgorithmText,
    read_algorithm,
    read_as,
    read_network,
    write_algorithm,
    write_network,
)
from weft.schedule import Schedule
from weft.training.choice import AUTO
from weft.training.devices import find_device
from weft.training.endpoints import find_endpoint
from weft.training.job import TrainingJob
from weft.training.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

_SCHEDULE_ENDINGS: Final = (".weft", ".json")
_OWN: Final = "workers do not have it; name one of Weft's, or run the job by itself"


class JobText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a `TrainingJob` as names and data."""

    model: str | Workload
    topology: str
    device: str | None
    batch: int | None
    dtype: str | None
    policy: str
    fusion: str | int | None
    options: dict[str, bool | int | float | str | None]
    endpoint: str
    algorithm: str | AlgorithmText
    channels: int
    overhead_s: float
    iterations: int | None
    jitter: float
    stragglers: dict[int, float]
    seed: int


def write_job(job: TrainingJob, *, scripts: bool, network: Callable[[Any], str] = write_network) -> str:
    """Text of a job for `read_job`.

    Parameters
    ----------
    job
        The job.
    scripts
        Whether workers see the files of this machine, so that a script of the user's can be named.
    network
        Writes its topology or plan; that of several jobs need not be written each time.

    Raises
    ------
    InputError
        If something of it is an object or a script that a worker does not have.

    Examples
    --------
    >>> job = TrainingJob("resnet50", "ring:4", policy="dear", stragglers={3: 1.5})
    >>> read_job(write_job(job, scripts=False)).stragglers
    {3: 1.5}
    """
    found = {field.name: getattr(job, field.name) for field in fields(job)}
    found["topology"] = network(job.topology)
    found["model"] = _write_model(job.model, scripts=scripts)
    found["device"] = _write_named("device", job.device, find_device)
    found["endpoint"] = _write_named("endpoint", job.endpoint, find_endpoint)
    found["algorithm"] = _write_algorithm(job.algorithm, scripts=scripts)
    found["options"], found["stragglers"] = dict(job.options), dict(job.stragglers)
    return msgspec.json.encode(JobText(**found)).decode()


def read_job(text: str, *, scripts: bool = False) -> TrainingJob:
    """Read a job; unless `scripts` are allowed, one that names a script is refused.

    Raises
    ------
    InputError
        If it is no job, or something of it is unknown.
    """
    task = read_as(text, JobText)
    algorithm: str | Algorithm
    if isinstance(task.algorithm, AlgorithmText):
        algorithm = read_algorithm(task.algorithm)
    else:
        algorithm = task.algorithm
        if not scripts and algorithm != AUTO:
            registry.find(algorithm)  # no script, and an error that names those there are
    if not scripts and isinstance(task.model, str):
        _refuse_script("model", task.model)
    given = {name: getattr(task, name) for name in task.__struct_fields__}
    return TrainingJob(**given | {"topology": read_network(task.topology), "algorithm": algorithm})


def _write_model(model: str | Workload, *, scripts: bool) -> str | Workload:
    if isinstance(model, str):
        if not scripts:
            _refuse_script("model", model)
        return model
    if type(model) is not Workload:
        raise InputError(f"model {model.name}: {_OWN}")
    return model


def _refuse_script(what: str, text: str) -> None:
    if ":" in text:
        raise InputError(f"{what} {text}: is a script; {_OWN}")


def _write_named(what: str, value: Any, find: Callable[[str], Any]) -> str | None:
    """Name of something that is found again by it."""
    if value is None or isinstance(value, str):
        return value
    try:
        if find(value.name) == value:
            return str(value.name)
    except InputError:
        pass
    raise InputError(f"{what} {value.name}: {_OWN}")


def _write_algorithm(algorithm: Any, *, scripts: bool) -> str | AlgorithmText:
    if isinstance(algorithm, str):
        if scripts:
            return algorithm
        if algorithm.lower().endswith(_SCHEDULE_ENDINGS):
            return write_algorithm(resolve_algorithm(algorithm))
        if ".py" in algorithm:
            raise InputError(f"algorithm {algorithm}: is a script; {_OWN}")
        return algorithm
    if isinstance(algorithm, Schedule | Algorithm):
        return write_algorithm(resolve_algorithm(algorithm))
    raise InputError(f"an algorithm of one's own: {_OWN}")
