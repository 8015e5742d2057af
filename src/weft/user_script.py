"""Functions of the user's own, from a script or given as such: how they are loaded, run and blamed.

``file.py:function`` on a command line is the one thing that makes Weft run code of a file. Whatever that
code raises is an error of its own, not of Weft: one line, with the place in the user's file. Whatever it
prints goes to standard error, because on standard output it would be taken for the answer of a command.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft.errors import InputError, LimitError, list_some, printable

_EXPECTED: Final = "expected script.py:function"
_LONGEST_TEXT: Final = 500
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's own.

    Parameters
    ----------
    name
        What messages call it: ``script.py:function``, or the name of a function that was given.
    function
        The function.
    script
        The file that was run to get it; None for a function that was given.
    """

    name: str
    function: Callable[..., Any]
    script: Path | None = None

    @classmethod
    def load(cls, target: str) -> UserFunction:
        """Run a script and take a function of it; the script may import what lies beside it.

        Parameters
        ----------
        target
            Such as ``"script.py:function"``.

        Raises
        ------
        InputError
            If there is no such script or function, or the script fails: then with the place in it.
        """
        file, _, wanted = target.rpartition(":")
        if not file or not wanted:
            raise InputError(f"{target!r} names no function; {_EXPECTED}")
        path = Path(file).absolute()
        if not path.is_file():
            raise InputError(f"there is no script {printable(file)}; {_EXPECTED}")
        name = f"weft_user_{path.stem}_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(f"{printable(file)} is no Python script; {_EXPECTED}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # for good: dataclasses and annotations look their module up there
        with _importing_from(path), explained(f"{printable(file)} cannot be imported", path, passing=()):
            spec.loader.exec_module(module)
        function = getattr(module, wanted, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
            has = list_some(known, 20) or "none"
            raise InputError(f"{printable(file)} has no function {wanted!r}; it has {has}")
        return cls(printable(target), function, path)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> UserFunction:
        """Take a function that was given from Python."""
        return cls(getattr(function, "__name__", type(function).__name__), function)

    @contextmanager
    def running(
        self, what: str | None = None, passing: tuple[type[Exception], ...] = (InputError,)
    ) -> Iterator[None]:
        """Explain what the function raises, and if it is of a script, let that import and print.

        Parameters
        ----------
        what
            Beginning of the error message; by default that the function failed.
        passing
            Errors that are left as they are.
        """
        code = getattr(self.function, "__code__", None)
        place = None if code is None else (Path(code.co_filename), code.co_firstlineno)
        file = self.script or (place and place[0])
        # Where something else than a call of the function failed, the line where it begins says nothing.
        how = (f"{self.name} failed", file, passing, place) if what is None else (what, file, passing)
        with _importing_from(self.script) if self.script else nullcontext(), explained(*how):
            yield


@contextmanager
def explained(
    what: str,
    script: Path | None,
    passing: tuple[type[Exception], ...] = (InputError,),
    otherwise: tuple[Path, int] | None = None,
) -> Iterator[None]:
    """Turn whatever the user's code raises into one line with the place in the script.

    Parameters
    ----------
    what
        Beginning of the message.
    script
        The user's file.
    passing
        Errors that are left as they are.
    otherwise
        File and line to name where the error was not raised from a line of the script: a call that does not
        fit the function, for one.

    Raises
    ------
    InputError
        With the type and text of the error, and the last line of the script that was running.
    LimitError
        The same, where something was too large or did not fit into memory.
    """
    try:
        yield
    except BaseException as error:  # a script may raise anything, and that is an error of its own
        if isinstance(error, (*passing, KeyboardInterrupt)):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(frame.filename, frame.lineno) for frame in frames if Path(frame.filename) == script]
        if isinstance(error, SyntaxError) and isinstance(error.filename, str) and error.filename:
            lines.append((error.filename, error.lineno))
        if not lines and otherwise is not None:
            lines.append((str(otherwise[0]), otherwise[1]))
        place = f"{printable(lines[-1][0])}:{lines[-1][1]}: " if lines else ""
        kind = LimitError if isinstance(error, LimitError | MemoryError) else InputError
        raise kind(f"{what}: {place}{_describe(error)}") from error


def _describe(error: BaseException) -> str:
    """Type and text of an error of the user's, whose own code may fail at making the text."""
    name = type(error).__name__
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - as for the error itself, anything may be raised here
        return f"{name} (its message cannot be printed)"
    if not text and isinstance(error, MemoryError):
        text = "does not fit into memory"
    text = printable(" ".join(text.split())[:_LONGEST_TEXT])
    return f"{name}: {text}" if text else name


@contextmanager
def _importing_from(script: Path) -> Iterator[None]:
    """Let a script import what lies beside it, and send what it prints to standard error."""
    folder = str(script.parent)
    sys.path.insert(0, folder)
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as apart:  # noqa: PTH123
            os.dup2(2, 1)
            with redirect_stdout(apart):
                yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        if folder in sys.path:
            sys.path.remove(folder)
