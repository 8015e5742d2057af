"""The tests, as a class that runs each of them in several processes; imported by these processes too.

Importing this loads torch's tests for the backend that the environment names (``BACKEND``), see
`torch_suite.translation`. Torch's own runner starts a new interpreter for every rank of every test, which
takes longer than most tests; here a server that has loaded them once forks the ranks. It has made no group
and started no thread by then, so that a rank begins as it would in a new interpreter.
"""

from __future__ import annotations

import importlib
import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from torch_suite.translation import GLOO, TABLES, TESTS, Census, refuse_gloo, translate

BACKEND: Final = os.environ["BACKEND"]

PATIENCE_S: Final = 60
"""How long ranks wait for each other between the parts of a test; torch's 10 are few on a busy machine."""

LEDGER: Final = "TORCH_SUITE_LEDGER"
"""Variable of the environment with the folder where ranks say how many groups they have made."""

census: Final = Census()


def load() -> Any:
    """Load torch's tests for the backend."""
    if BACKEND != GLOO:
        importlib.import_module("weft.torch")  # registers the backend
        translate(BACKEND)
        refuse_gloo()
        census.watch(BACKEND)
    # Tests that make the default group anew are left out if this is no file; each gets a file of its own.
    os.environ.setdefault("INIT_METHOD", "file:///dev/null")
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    importlib.import_module(TABLES).TIMEOUT_OVERRIDE.clear()  # one limit for all tests: the worker's
    found: Any = importlib.import_module(TESTS)
    found.Barrier.sync.__func__.__defaults__ = (None, PATIENCE_S)
    return found


tests: Final[Any] = load()


class TorchSuite(tests.TestDistBackend, tests.DistributedTest._DistTestBase):  # type: ignore[misc]
    """Torch's tests of a backend, each in as many processes as ``WORLD_SIZE`` says."""

    deaths: str = ""
    """Which ranks were ended by a signal other than the one that ends ranks of a test that has failed."""

    def setUp(self) -> None:
        """Start the ranks."""
        super().setUp()
        context = torch.multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._start_processes(partial(_process, context))

    def tearDown(self) -> None:
        """Note how ranks have ended, since the others tell only that they have lost them."""
        codes = {rank: process.exitcode or 0 for rank, process in enumerate(self.processes)}
        died = {rank: -code for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM}
        self.deaths = "".join(f"rank {rank} died by {signal.Signals(died[rank]).name}; " for rank in died)
        super().tearDown()

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **named: Any) -> None:
        """Run a test as one rank, and note afterwards how many groups it has made."""
        tests.INIT_METHOD = os.environ["INIT_METHOD"]
        try:
            super()._run(rank, test_name, file_name, pipe, **named)
        finally:
            (Path(os.environ[LEDGER]) / str(rank)).write_text(str(census.groups))


def _process(context: Any, *, target: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A rank with the environment of this process, where each test has its own folders."""
    given = (dict(os.environ), target, args, kwargs)
    return context.Process(target=_in_environment, name=name, args=given)


def _in_environment(environment: dict[str, str], target: Any, args: Any, kwargs: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*args, **kwargs)


def names() -> list[str]:
    """All tests, in the order of their names."""
    return sorted(name for name in dir(TorchSuite) if name.startswith("test"))
