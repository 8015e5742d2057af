"""Exchange of the job's secret: where rank 0 leaves it for ranks whose launcher has none to give.

A note says on which port rank 0 listens, and a secret that it has just made. It is left when rank 0 listens
and taken away when everybody has come, or nobody will. A rank that cannot join with the note that it has read
reads again: a note that an earlier job left behind does no harm.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Protocol

import msgspec

from weft import limits
from weft.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATTEMPTS: Final = 10


class SecretNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The port of rank 0 and the job's secret; the address is None where all ranks know it already."""

    port: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    secret: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    address: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z.:%_-]{1,255}$")] | None = None

    def encode(self) -> bytes:
        """Text to be left."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(text: bytes) -> SecretNote | None:
        """Note in a text; `None` if it is something else."""
        try:
            return msgspec.json.decode(text, type=SecretNote)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


class SecretExchange(Protocol):
    """A place that all ranks of a job can reach, and as few others as possible."""

    def leave(self, note: SecretNote, timeout: float) -> None:
        """Put a note there, in the place of an earlier one."""

    def read(self, timeout: float) -> SecretNote | None:
        """Note that is there now."""

    def remove(self) -> None:
        """Take the note away."""


@dataclass(frozen=True)
class FileExchange:
    """A file that only this user can open: for ranks that are all on this machine.

    It lies in XDG_RUNTIME_DIR, or else in a folder of the temporary directory that carries the user's number.
    That folder must be the user's own and closed to others, else nothing is written to it or read from it:
    another user may have made it first.

    Parameters
    ----------
    job
        What tells this job from all others that run on this machine now.
    """

    job: str

    def __str__(self) -> str:
        return f"{self._folder() / self._name()}"

    def leave(self, note: SecretNote, timeout: float) -> None:  # noqa: ARG002 - writing a file does not wait
        """Put a whole note there at once, in the place of one that was left behind."""
        name = self._name()
        for attempt in range(_ATTEMPTS):
            if not os.environ.get("XDG_RUNTIME_DIR"):
                with suppress(FileExistsError):
                    self._folder().mkdir(mode=0o700)
            try:
                with self._open_folder() as folder:
                    with suppress(FileNotFoundError):
                        os.unlink(f"{name}.new", dir_fd=folder)
                    _write_whole(f"{name}.new", note.encode(), folder)
                    os.rename(f"{name}.new", name, src_dir_fd=folder, dst_dir_fd=folder)
                    return
            except FileNotFoundError:  # another job has just removed the folder, which was empty
                if attempt == _ATTEMPTS - 1:
                    raise

    def read(self, timeout: float) -> SecretNote | None:  # noqa: ARG002 - reading a file does not wait
        """Note that is there now."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._open_folder() as folder:
                handle = os.open(self._name(), flags, dir_fd=folder)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or not _is_private(found):
                self._refuse("it must be a file of your own with mode 600")
            return SecretNote.decode(os.read(handle, limits.MAX_UNPROVEN_BYTES))
        finally:
            os.close(handle)

    def remove(self) -> None:
        """Take the note away, and the folder if it was made for it."""
        with suppress(FileNotFoundError), self._open_folder() as folder:
            os.unlink(self._name(), dir_fd=folder)
        if not os.environ.get("XDG_RUNTIME_DIR"):
            with suppress(OSError):  # other jobs have notes in it
                self._folder().rmdir()

    def _name(self) -> str:
        return f"weft-{hashlib.sha256(self.job.encode()).hexdigest()[:32]}"

    def _folder(self) -> Path:
        if runtime := os.environ.get("XDG_RUNTIME_DIR"):
            return Path(runtime)
        import tempfile  # not at the top: most ranks are given their secret

        return Path(tempfile.gettempdir(), f"weft-{os.geteuid()}")

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        try:
            handle = os.open(self._folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if not os.environ.get("XDG_RUNTIME_DIR"):
                raise
            self._refuse("XDG_RUNTIME_DIR names no folder")
        except OSError as error:  # also what a symbolic link gives
            self._refuse(f"its folder cannot be opened: {error.strerror}")
        try:
            if not _is_private(os.fstat(handle)):
                self._refuse("its folder must be your own, with mode 700")
            yield handle
        finally:
            os.close(handle)

    def _refuse(self, problem: str) -> NoReturn:
        msg = f"the job's secret cannot be left at {self}: {problem}; or set WEFT_SECRET and WEFT_PORT"
        raise InputError(msg)


@dataclass(frozen=True)
class StoreExchange:
    """The store of torchrun: for ranks on several machines. Every process that reaches its port can read it.

    Parameters
    ----------
    address, port
        Where the store is.
    job
        What tells this job from others.
    """

    address: str
    port: int
    job: str

    def __str__(self) -> str:
        return f"torchrun's store at {self.address}:{self.port}"

    def leave(self, note: SecretNote, timeout: float) -> None:
        """Put a note there, in the place of an earlier one."""
        with self._talk(timeout) as store:
            store.set(self.job, note.encode().decode())

    def read(self, timeout: float) -> SecretNote | None:
        """Note that is there now."""
        with self._talk(timeout) as store:
            return SecretNote.decode(store.get(self.job)) if store.check([self.job]) else None

    def remove(self) -> None:
        """Take the note away."""
        with suppress(ConnectionError), self._talk(limits.MAX_UNPROVEN_SECONDS) as store:
            store.delete_key(self.job)

    @contextmanager
    def _talk(self, timeout: float) -> Iterator[Any]:
        try:
            from torch.distributed import TCPStore  # type: ignore[attr-defined]
        except ImportError as error:
            what = f"this job has no secret (WEFT_SECRET), and to ask {self} for it"
            raise MissingPackageError(what, "torch", error) from error
        try:
            wait = timedelta(seconds=max(timeout, 1.0))
            yield TCPStore(self.address, self.port, is_master=False, timeout=wait, wait_for_workers=False)
        except RuntimeError as error:  # torch has no narrower one for all that can happen to a connection
            raise ConnectionError(f"{self}: {str(error).partition(chr(10))[0]}") from error


def _write_whole(name: str, data: bytes, folder: int) -> None:
    """Write a new file that only its owner can open, all of it; on a full disk nothing is left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        while data:  # a disk that is nearly full takes a part, and says why with the next
            data = data[os.write(handle, data) :]
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(handle)


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
