"""Open MPI on several hosts of one machine: what it starts remote daemons with, instead of ssh.

A host is told by its name only, so each daemon is given one: it enters its host as the controller does, and
takes the name in a namespace of its own.
"""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.bench.peers.peer import JobPlace
    from weft.runtime.launcher.launch import Seat

_RENAMED: Final = ("unshare", "--uts", "sh", "-c")
_READABLE_BY_OWNER: Final = 0o700


def start_remotely(job: JobPlace, program: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment of an ``mpirun`` whose ranks go to their seats."""
    assert job.seats is not None
    hosts = [(host, list(seats)) for host, seats in groupby(job.seats, key=lambda seat: seat.host)]
    if len({host for host, _ in hosts}) < len(hosts):
        msg = "Open MPI fills host after host, but the ranks of a host do not follow each other here"
        raise InputError(msg)
    agent = Path(job.folder, "mpi-agent")
    agent.write_text(_agent([seats[0] for _, seats in hosts]), "utf-8")
    agent.chmod(_READABLE_BY_OWNER)
    first = hosts[0][1][0]
    slots = ",".join(f"{host}:{len(seats)}" for host, seats in hosts)
    rename = 'hostname "$0"; exec "$@"'
    command = (*first.prefix, *_RENAMED, rename, first.host, program, "--host", slots)
    interface = first.variables["GLOO_SOCKET_IFNAME"]
    variables = {
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "OMPI_MCA_btl": "self,sm,tcp",
        "OMPI_MCA_btl_tcp_if_include": interface,
        "OMPI_MCA_oob_tcp_if_include": interface,
        "PRTE_MCA_prte_if_include": interface,
    }
    return command, variables


def _agent(seats: Sequence[Seat]) -> str:
    cases = [
        f'{seat.host}) exec {shlex.join((*seat.prefix, *_RENAMED))} "hostname {seat.host}; $*";;'
        for seat in seats
    ]
    return "\n".join(["#!/bin/sh", "host=$1; shift", "case $host in", *cases, "esac", "exit 1", ""])
