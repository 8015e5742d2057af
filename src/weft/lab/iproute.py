"""What the lab asks of the kernel, through iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

from weft.errors import InputError, RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SECONDS: Final = 30.0
_SHOWN: Final = 300
_DENIALS: Final = ("Operation not permitted", "Permission denied", "Read-only file system")
"""How programs spell EPERM, EACCES and EROFS: even root lacks privileges in most containers."""

_PRIVILEGES: Final = (
    "the lab needs CAP_SYS_ADMIN, CAP_NET_ADMIN and a writable /proc/sys: run it outside the container, "
    "or start the container with --privileged"
)


def check_rights() -> None:
    """Refuse to start where it is plain that no network can be made; the kernel may still refuse.

    Raises
    ------
    InputError
        With what is missing.
    """
    for program in ("ip", "tc"):
        find(program)
    if os.geteuid() != 0:
        raise InputError("the lab makes network namespaces, which needs root; run it as root")


def find(program: str) -> str:
    """Where a program of iproute2 is."""
    path = shutil.which(program, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if path is None:
        raise InputError(f"{program} is not installed; apt install iproute2")
    return path


def ip(*words: str, lines: Iterable[str] = (), space: str | None = None) -> str:
    """Run ``ip`` in a namespace: one command, or many lines at once."""
    return _run("ip", words, lines, space)


def tc(lines: Iterable[str], space: str) -> None:
    """Run lines of ``tc`` in a namespace."""
    _run("tc", (), lines, space)


def execute(space: str, *command: str) -> str:
    """Run any program in a namespace."""
    return _run("ip", ("netns", "exec", space, *command), (), None)


def _run(program: str, words: Sequence[str], lines: Iterable[str], space: str | None) -> str:
    where = [] if space is None else ["-n", space]
    text = "".join(f"{line}\n" for line in lines)
    batch = ["-batch", "-"] if text else []
    command = [find(program), *where, *batch, *words]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},  # a shell would translate the denials
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeFailure(f"{' '.join(command[:6])}: no answer within {_SECONDS:.0f} s") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:_SHOWN]
        if any(denial in said for denial in _DENIALS):
            raise InputError(f"a privilege to make network namespaces is missing ({said}); {_PRIVILEGES}")
        raise RuntimeFailure(f"{' '.join(command[:8])}: {said or f'exit code {done.returncode}'}")
    return done.stdout
