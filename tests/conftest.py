"""What holds for every test: reproducible examples, and under WEFT_CI=1 no test skipped."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

UNDER_CI = os.environ.get("WEFT_CI") == "1"

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if UNDER_CI else "dev")


def skips_that_count(config: pytest.Config) -> int:
    """Return how many skips must fail the run: all under WEFT_CI=1, and none elsewhere."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not UNDER_CI or reporter is None:
        return 0
    return len(reporter.stats.get("skipped", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that skipped something has not tested it."""
    if exitstatus == pytest.ExitCode.OK and skips_that_count(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say why a run without a failing test failed."""
    if skipped := skips_that_count(config):
        terminalreporter.write_line(f"WEFT_CI=1: {skipped} skipped, which counts as failed", red=True)
