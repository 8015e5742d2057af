"""The place of a process in its job, from its environment: rank, size, and the address of rank 0.

``weft run`` sets everything. Other launchers set rank and size, but have no secret that only the job knows,
and none is made up from what others could guess. Without ``WEFT_SECRET`` or ``WEFT_SECRET_FILE`` rank 0 makes
one and leaves it where the other ranks find it (`weft.runtime.bootstrap.secret_note`), if there is such a
place; else joining is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from weft import limits
from weft.errors import InputError
from weft.runtime.bootstrap.secret_note import FileExchange, StoreExchange
from weft.runtime.launcher import failure_reports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.runtime.bootstrap.secret_note import SecretExchange

Launcher = Literal["weft", "torchrun", "mpirun", "srun", "none"]

SECRET_BYTES: Final = 32
LOOPBACK: Final = "127.0.0.1"
_HOW_TO_START: Final = "start the script with 'weft run -n 4 script.py', or under torchrun, mpirun or srun"
_LONGEST_VALUE: Final = 255
_LARGEST_PORT: Final = 65_535
_MOST_DIGITS: Final = 9
_HEXADECIMAL: Final = frozenset(string.hexdigits)


@dataclass(frozen=True)
class Place:
    """One process's place in a job.

    Parameters
    ----------
    rank, size
        Which of how many.
    local_rank, local_size
        The same among the ranks of this machine, where the launcher tells.
    launcher
        The launcher that started it; ``none`` if the variables were set by hand.
    address, port
        Where rank 0 listens; `None` if the launcher does not tell.
    job
        What tells this job from others at the same place.
    secret
        32 bytes that only the ranks of this job know; never printed.
    secret_exchange
        Where rank 0 leaves a secret for the others, if there is none yet.
    report
        Pipe on which ``weft run`` hears why a rank fails (`weft.runtime.launcher.failure_reports`).
    """

    rank: int
    size: int
    local_rank: int | None = None
    local_size: int | None = None
    launcher: Launcher = "none"
    address: str | None = None
    port: int | None = None
    job: str = ""
    secret: bytes | None = field(default=None, repr=False)
    secret_exchange: SecretExchange | None = None
    report: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no job can be."""
        if self.size < 1:
            raise InputError(f"size {self.size}: a job has at least one rank")
        limits.check("ranks of a job", self.size, limits.MAX_JOB_RANKS)
        if not 0 <= self.rank < self.size:
            raise InputError(f"rank {self.rank} is not among the {self.size} of the job, which count from 0")
        if self.secret is not None and len(self.secret) != SECRET_BYTES:
            raise InputError(f"the secret has {len(self.secret)} bytes, not {SECRET_BYTES}")


@dataclass(frozen=True)
class _Dialect:
    """Names of the variables in which one launcher gives rank and size.

    ``identity`` tells one of its jobs from another; ``machines`` says how many machines a job is on.
    """

    launcher: Launcher
    rank: str
    size: str
    local_rank: str
    local_size: str
    identity: tuple[str, ...]
    machines: str = ""


# First match wins. mpirun goes before srun, which may have started mpirun's own daemons.
_DIALECTS: Final = (
    _Dialect("none", "WEFT_RANK", "WEFT_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE", ()),
    _Dialect(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ),
    _Dialect(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    _Dialect("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ()),
    _Dialect(
        "srun",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        "SLURM_STEP_NUM_NODES",
    ),
)


def in_job(variables: Mapping[str, str] | None = None) -> bool:
    """Whether some launcher started this process as a rank; `find_place` says as which one.

    Examples
    --------
    >>> in_job({"RANK": "1"}), in_job({})
    (True, False)
    """
    return _spoken(os.environ if variables is None else variables) is not None


def on_one_machine(variables: Mapping[str, str] | None = None) -> bool:
    """Whether the launcher says that all ranks of the job are on this machine.

    Examples
    --------
    >>> on_one_machine({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"})
    True
    >>> on_one_machine({"RANK": "1", "WORLD_SIZE": "4"})
    False
    """
    said = os.environ if variables is None else variables
    spoken = _spoken(said)
    return spoken is not None and _is_one_machine(said, spoken)


def _spoken(said: Mapping[str, str]) -> _Dialect | None:
    """The first dialect in which the variables name a rank."""
    return next((dialect for dialect in _DIALECTS if dialect.rank in said), None)


def _is_one_machine(said: Mapping[str, str], dialect: _Dialect) -> bool:
    here = said.get(dialect.local_size)
    return (here is not None and here == said.get(dialect.size)) or said.get(dialect.machines) == "1"


def find_place(variables: Mapping[str, str] | None = None) -> Place:
    """Read this process's place from its environment.

    Parameters
    ----------
    variables
        By default the environment of the process.

    Raises
    ------
    InputError
        If the variables are missing or wrong; names the variable.

    Examples
    --------
    >>> find_place({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"})
    Place(rank=1, size=4, ..., address='n1', port=29501, job='torchrun', secret_exchange=None)
    """
    said = os.environ if variables is None else variables
    if (spoken := _spoken(said)) is not None:
        return _read(said, spoken)
    # A size alone is a start that went wrong halfway: say which variable is the missing one.
    for dialect in _DIALECTS[:2]:
        if dialect.size in said:
            _refuse_missing(dialect.rank, dialect.size)
    msg = f"this process is not a rank of any job: neither WEFT_RANK nor RANK is set; {_HOW_TO_START}"
    raise InputError(msg)


def _read(said: Mapping[str, str], dialect: _Dialect) -> Place:
    if dialect.size not in said:
        _refuse_missing(dialect.size, dialect.rank)
    launcher = dialect.launcher
    if launcher == "none" and said.get("WEFT_LAUNCHER") == "weft":
        launcher = "weft"
    size = _number(said, dialect.size, 1, limits.MAX_RANKS)
    local_size = _optional_number(said, dialect.local_size, 1, limits.MAX_RANKS)
    one_machine = _is_one_machine(said, dialect)
    secret = _secret(said)
    exchange = _find_exchange(said, dialect, one_machine=one_machine) if secret is None else None
    return Place(
        rank=_number(said, dialect.rank, 0, limits.MAX_RANKS),
        size=size,
        local_rank=_optional_number(said, dialect.local_rank, 0, limits.MAX_RANKS),
        local_size=local_size,
        launcher=launcher,
        address=_address(said, dialect, one_machine=one_machine),
        port=_port(said, dialect, any_port=exchange is not None),
        job=_job(said, dialect),
        secret=secret,
        secret_exchange=exchange,
        report=_text(said, failure_reports.VARIABLE) if launcher == "weft" else None,
    )


def _refuse_missing(missing: str, given: str) -> NoReturn:
    raise InputError(f"{given} is set but {missing} is not; {_HOW_TO_START}")


def _text(said: Mapping[str, str], name: str) -> str | None:
    value = said.get(name)
    if value is None:
        return None
    limits.check_text(name, value, InputError, longest=_LONGEST_VALUE)
    return value


def _number(said: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = said[name]
    # int() takes signs, blanks, underscores and other alphabets' digits, which no launcher writes.
    value = int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else -1
    if not least <= value <= most:
        raise InputError(f"{name}={text[:40]!r}: expected a whole number from {least} to {most}")
    return value


def _optional_number(said: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    return _number(said, name, least, most) if name in said else None


def _address(said: Mapping[str, str], dialect: _Dialect, *, one_machine: bool) -> str | None:
    """Where rank 0 listens: as told, else loopback if all ranks are here, else as the launcher tells."""
    if address := _text(said, "WEFT_ADDRESS"):
        return address
    if one_machine:
        return LOOPBACK
    if dialect.launcher == "torchrun":
        return _text(said, "MASTER_ADDR")
    if dialect.launcher == "srun":
        return _first_node(_text(said, "SLURM_STEP_NODELIST") or "")
    return None


def _first_node(nodes: str) -> str | None:
    """First host of a Slurm list: ``n[03-07,9],m1`` begins with ``n03``."""
    match = re.match(r"([\w.-]*)(?:\[(\d+)[^\]]*\]([\w.-]*))?", nodes)
    name = "".join(part or "" for part in match.groups()) if match else ""
    return name or None


def _find_exchange(said: Mapping[str, str], dialect: _Dialect, *, one_machine: bool) -> SecretExchange | None:
    """Where rank 0 can leave a secret: in a file for ranks of one machine, else in torchrun's store."""
    job = _job(said, dialect)
    if dialect.launcher == "mpirun" and one_machine:
        # Nothing in the environment tells one job of MPICH from another, but all its ranks have one parent.
        return FileExchange(f"{job} {_text(said, 'PMIX_SERVER_URI2') or _parent()}")
    if dialect.launcher != "torchrun" or not {"MASTER_ADDR", "MASTER_PORT"} <= said.keys():
        return None
    address, port = _text(said, "MASTER_ADDR") or "", _number(said, "MASTER_PORT", 1, _LARGEST_PORT)
    if one_machine:
        return FileExchange(f"{job} {address}:{port}")
    # Otherwise rank 0 is expected to serve the store itself, later.
    served = said.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return StoreExchange(address, port, f"weft/{job}") if served else None


def _parent() -> str:
    """The process that started this one, in words that no later process shares."""
    pid = os.getppid()
    started = Path("/proc", str(pid), "stat").read_text("utf-8").rpartition(")")[2].split()[19]
    return f"{pid}@{started}"


def _port(said: Mapping[str, str], dialect: _Dialect, *, any_port: bool) -> int | None:
    """Port of rank 0; beside torch's own, which torch itself listens on."""
    if "WEFT_PORT" in said:
        return _number(said, "WEFT_PORT", 1, _LARGEST_PORT)
    if any_port:
        return None
    if dialect.launcher == "torchrun" and "MASTER_PORT" in said:
        torch_port = _number(said, "MASTER_PORT", 1, _LARGEST_PORT)
        return torch_port + 1 if torch_port < _LARGEST_PORT else torch_port - 1
    return None


def _job(said: Mapping[str, str], dialect: _Dialect) -> str:
    if job := _text(said, "WEFT_JOB"):
        return job
    parts = (_text(said, name) for name in dialect.identity)
    job = "/".join((dialect.launcher, *(part for part in parts if part is not None)))
    return job if len(job) <= _LONGEST_VALUE else hashlib.sha256(job.encode()).hexdigest()


def _secret(said: Mapping[str, str]) -> bytes | None:
    text, path = said.get("WEFT_SECRET"), said.get("WEFT_SECRET_FILE")
    if text is not None and path is not None:
        raise InputError("WEFT_SECRET and WEFT_SECRET_FILE are both set; unset one of them")
    if text is not None:
        return _parse_secret(text, "WEFT_SECRET")
    return None if path is None else _parse_secret(_read_secret(path), path)


def _parse_secret(text: str, source: str) -> bytes:
    # The text itself is in no message: messages end up in logs.
    if len(text.strip()) != 2 * SECRET_BYTES or not _HEXADECIMAL.issuperset(text.strip()):
        raise InputError(f"{source}: expected 64 hexadecimal digits, as 'openssl rand -hex 32' prints them")
    return bytes.fromhex(text.strip())


def _read_secret(path: str) -> str:
    try:
        # Not blocking: the path may name a pipe, which is refused below.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        _refuse_file(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            _refuse_file(path, "not a regular file")
        if found.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(found.st_mode) & 0o077:
            _refuse_file(path, "others may read it; it must be your own, with 'chmod 600'")
        return os.read(handle, limits.MAX_UNPROVEN_BYTES).decode("ascii", "replace")
    finally:
        os.close(handle)


def _refuse_file(path: str, problem: str) -> NoReturn:
    raise InputError(f"WEFT_SECRET_FILE: {path}: {problem}")
