"""The extension `weft._runtime`, or what stands in its place where it was not built.

Weft's C++ is two extensions. `weft._core` needs no particular system: topologies, schedules, simulation and
verification work wherever it compiles. `weft._runtime` is Linux's shared memory, sockets and kernels, which
running collectives needs; without it this package can be imported, and says what is missing when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NoReturn

from weft.errors import InputError

if TYPE_CHECKING:
    from weft import _runtime

__all__ = ["_runtime", "require_runtime"]


class _MissingRuntime:
    """Takes the place of `weft._runtime`; whatever is asked of it is refused with the reason."""

    def __init__(self, reason: ImportError) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and its tools look for those on any object
            raise AttributeError(name)
        raise self._refusal() from self._reason

    def _refusal(self) -> InputError:
        problem = f"the extension weft._runtime, which cannot be loaded ({self._reason})"
        return InputError(
            f"running collectives needs {problem}; it is for Linux: "
            "build Weft there, from its clone, with `make build` or `pip install .`. "
            "Everything that runs no collectives works without it"
        )


if not TYPE_CHECKING:
    try:
        _runtime = importlib.import_module("weft._runtime")
    except ImportError as error:
        _runtime = _MissingRuntime(error)


def require_runtime() -> None:
    """Refuse at once what would need the extension later, after other ranks were waited for or started.

    Raises
    ------
    InputError
        If `weft._runtime` was not built, or cannot be loaded.
    """
    _runtime.version()
