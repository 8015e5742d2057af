"""What the points of a sweep have in common, as text that another machine can read.

A spec travels as it is. A topology of a file travels as its record, a plan and a schedule as the bytes of
their files, in base 64: a worker needs no file of this machine, and reads what it gets as it reads any file.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weft import limits
from weft.algorithms import registry
from weft.algorithms.own_algorithm import OwnSchedule
from weft.errors import InputError
from weft.planning.plan_file import decode_plan, encode_plan
from weft.planning.plans import Plan
from weft.schedule.codec import decode_schedule, encode_schedule
from weft.topology import Topology, load_topology
from weft.topology.record import TopologyRecord, from_record, to_record
from weft.topology.repeated_box import split_repeated
from weft.topology.spec_parser import is_spec

if TYPE_CHECKING:
    from weft.algorithms.registry import Algorithm

_Found = TypeVar("_Found")

_KEPT_NETWORKS: Final = 4
"""Networks that a worker keeps: points of a sweep come in an order in which few change at a time."""


class NetworkText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A topology as a spec or as data, or a plan."""

    spec: str | None = None
    topology: TopologyRecord | None = None
    plan: bytes | None = None


class AlgorithmText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An algorithm of Weft's by its name, or a schedule with the name that it is shown by."""

    name: str
    schedule: bytes | None = None
    max_work: float | None = None


def write_network(network: str | Path | Topology | Plan) -> str:
    """Text of a network for `read_network`; a file is read here.

    Raises
    ------
    InputError
        If a file cannot be read.

    Examples
    --------
    >>> write_network("torus:4x4")
    '{"spec":"torus:4x4"}'
    >>> read_network(write_network(load_topology("ring:3"))) == load_topology("ring:3")
    True
    """
    if isinstance(network, Plan):
        found = NetworkText(plan=encode_plan(network))
    elif isinstance(network, str) and is_spec(network) and split_repeated(network) is None:
        found = NetworkText(spec=network)
    else:
        found = NetworkText(topology=to_record(load_topology(network)))
    return msgspec.json.encode(found).decode()


@lru_cache(_KEPT_NETWORKS)
def read_network(text: str) -> Topology | Plan:
    """Read the text of a network.

    Raises
    ------
    InputError
        If it is none.
    """
    found = read_as(text, NetworkText)
    if found.spec is not None:
        return load_topology(found.spec) if is_spec(found.spec) else _refuse(found.spec)
    if found.plan is not None:
        return decode_plan(found.plan, "the plan of a task")
    if found.topology is None:
        raise InputError("a task has no network")
    return from_record(found.topology)


def _refuse(spec: str) -> Topology:
    raise InputError(f"{spec}: is no spec; a task names no files")


def write_algorithm(algorithm: Algorithm) -> AlgorithmText:
    """An algorithm for `read_algorithm`.

    Raises
    ------
    InputError
        If it is a function of the user's own, which another machine does not have.

    Examples
    --------
    >>> write_algorithm(registry.find("multitree:paper_order=true")).name
    'multitree:paper_order=true'
    """
    if isinstance(algorithm, OwnSchedule):
        return AlgorithmText(algorithm.name, encode_schedule(algorithm.schedule), algorithm.max_work)
    if algorithm.is_own:
        how = "leave --executor out, or export its schedule with weft export and name that file"
        raise InputError(f"{algorithm.name}: workers do not have this function; {how}")
    return AlgorithmText(algorithm.name)


def read_algorithm(text: AlgorithmText) -> Algorithm:
    """Find the algorithm that a task names, or read its schedule.

    Raises
    ------
    InputError
        If there is none of that name, or the schedule cannot be read.
    """
    if text.schedule is None:
        return registry.find(text.name)
    return OwnSchedule.of(decode_schedule(text.schedule, text.name), text.name, text.max_work)


def read_as(text: str, kind: type[_Found]) -> _Found:
    """Read JSON as a structure.

    Raises
    ------
    InputError
        If it is longer than a task may be, or of another structure.
    """
    limits.check("characters of a task", len(text), limits.MAX_TASK_CHARACTERS)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"the text of a task cannot be read: {error}") from error
