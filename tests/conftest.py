"""What holds for every test: reproducible examples, one environment, and under WEFT_CI=1 no test skipped."""

from __future__ import annotations

import gc
import os
import re
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from support.examples import USUAL, scale
from support.hosts import NO_NAMESPACES, find_missing_privilege

collect_ignore_glob = ["*/jobs/*.py", "support/*_rank.py"]  # programs of ranks, which run when imported

# Before anything imports numpy: threads of its BLAS wait for work in a loop, and every process that a test
# starts would have some, many more than there are processors.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

UNDER_CI = os.environ.get("WEFT_CI") == "1"

FOREIGN = re.compile(
    r"(FORCE_COLOR|NO_COLOR|CLICOLOR.*|TTY_.*|TERM|COLORTERM|COLUMNS|LINES|LANG|LANGUAGE|LC_.*"
    r"|WEFT_(?!CI$|UPDATE_GOLDEN$|MPICH$|ONECCL$).*"
    r"|(OMPI|PMI|PMIX|PRTE|SLURM|TORCHELASTIC)_.*|(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT))"
)
"""Variables of whoever starts the tests: how to print, and which rank of which job a process is."""

settings.register_profile("dev", deadline=None, max_examples=scale(USUAL), print_blob=True)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)


@pytest.fixture(autouse=True, scope="session")
def _same_environment_everywhere() -> Iterator[None]:
    """Take away what a terminal, a CI system or a launcher has set; a test about it sets it itself."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="weft-flights-") as folder:
        for name in filter(FOREIGN.fullmatch, list(os.environ)):
            patch.delenv(name)
        # Jobs that fail on purpose write their flight records there, and not into the working directory.
        patch.setenv("WEFT_FLIGHT_DIR", folder)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Choose how random examples are drawn: the same ones in CI, unless a seed was given on purpose."""
    is_seeded = config.getoption("--hypothesis-seed") is not None
    settings.load_profile("ci" if UNDER_CI and not is_seeded else "dev")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage in nothing that is collected: tests and modules stay to the end, and are many."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the package unless they are asked for, and order what several processes run.

    A fixture of a module is made once in every process that runs one of its tests, and some take half a
    minute: under ``--dist loadgroup`` the tests that use one run in the same process.
    """
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        used = fixtures.name2fixturedefs.values() if fixtures else ()
        if any(one[-1].scope == "module" for one in used):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if hasattr(config, "workerinput"):  # one of several processes
        mix_folders(items)
    if "packaging" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("packaging")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def mix_folders(items: list[pytest.Item]) -> None:
    """Spread the tests of each folder of tests/ evenly; slow ones come first, doctests, being short, last.

    In some folders nearly every test waits for its ranks, in others for none. One after the other, processors
    would be idle for a part of the time, and have more ranks than they can run for another.
    """
    folders = [item.nodeid.split("/")[1] if item.nodeid.startswith("tests/") else "" for item in items]
    sizes, seen = Counter(folders), Counter[str]()
    places = dict[pytest.Item, tuple[bool, float]]()
    for item, folder in zip(items, folders, strict=True):
        seen[folder] += 1
        place = (seen[folder] - 0.5) / sizes[folder] if folder else 1.0
        places[item] = (item.get_closest_marker("slow") is None, place)
    items.sort(key=places.__getitem__)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need network namespaces where none can be made."""
    if item.get_closest_marker("namespaces") and (missing := find_missing_privilege()):
        pytest.skip(f"{NO_NAMESPACES}: {missing}")


def count_skips(config: pytest.Config) -> tuple[int, int]:
    """Return how many skips must fail the run, and how many the machine is the reason for.

    All count under WEFT_CI=1 and none elsewhere, except those for want of namespaces on a machine that indeed
    cannot make any: such a machine may run the tests, and the summary says what it left out.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not UNDER_CI or reporter is None:
        return 0, 0
    skipped = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", ())]
    excused = [reason for reason in skipped if reason.startswith(f"Skipped: {NO_NAMESPACES}: ")]
    if excused and find_missing_privilege() is None:
        return len(skipped), 0
    return len(skipped) - len(excused), len(excused)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that skipped something has not tested it."""
    if exitstatus == pytest.ExitCode.OK and count_skips(session.config)[0]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say why a run without a failing test failed, and what this machine could not test."""
    counted, excused = count_skips(config)
    if counted:
        terminalreporter.write_line(f"WEFT_CI=1: {counted} skipped, which counts as failed", red=True)
    if excused:
        terminalreporter.write_line(f"WEFT_CI=1: {excused} not tested here: {NO_NAMESPACES}", yellow=True)
