"""The driver of torch's own tests: what it translates, shares out, compares and keeps."""

from __future__ import annotations

import ast
import doctest
import importlib
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_suite import __main__ as command
from torch_suite import watch
from torch_suite.comparison import compare, read_reasons, report
from torch_suite.outcomes import (
    Entry,
    Outcome,
    Record,
    outcomes_of,
    read_journal,
    read_record,
    reason_of,
    write_entry,
    write_record,
)
from torch_suite.shards import Shard, share
from torch_suite.translation import Census, translate, translated
from torch_suite.watch import Setting, Watch

PASSED, FAILED, SKIPPED = (
    Outcome("passed", 1.0),
    Outcome("failed", 1.0, "ValueError: no"),
    Outcome("skipped", 0.0),
)


@given(
    lengths=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.floats(0, 100), max_size=40),
    unknown=st.sets(st.text("xyz", min_size=1, max_size=3), max_size=5),
    of=st.integers(1, 6),
)
def test_shards_hold_every_test_once_and_are_the_same_every_time(
    lengths: dict[str, float], unknown: set[str], of: int
) -> None:
    tests = [*lengths, *sorted(unknown)]
    parts = [share(tests, lengths, Shard(number, of)) for number in range(1, of + 1)]
    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert parts == [share(reversed(tests), lengths, Shard(number, of)) for number in range(1, of + 1)]


def test_shards_take_about_equally_long() -> None:
    lengths = {f"test_{number}": float(number) for number in range(40)}
    totals = [sum(lengths[test] for test in share(lengths, lengths, Shard(part, 4))) for part in (1, 2, 3, 4)]
    assert max(totals) - min(totals) <= 2.0


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected i/n"):
        Shard.parse(text)


def test_a_test_that_passes_on_gloo_only_is_worse_unless_it_is_on_the_list() -> None:
    gloo = {"test_a": PASSED, "test_b": PASSED, "test_c": PASSED}
    judged = {"test_a": PASSED, "test_b": FAILED, "test_c": FAILED}
    found = compare(gloo, judged, {"test_b": "It cannot."}, set(gloo))
    assert (found.worse, found.expected, found.ok) == ({"test_c": FAILED}, {"test_b": "It cannot."}, False)
    assert compare(gloo, judged, {"test_b": "It cannot.", "test_c": "Nor this."}, set(gloo)).ok


def test_a_test_that_is_skipped_here_and_passes_on_gloo_is_worse() -> None:
    assert compare({"test_a": PASSED}, {"test_a": SKIPPED}, {}, {"test_a"}).worse == {"test_a": SKIPPED}


@pytest.mark.parametrize(("gloo", "here"), [(PASSED, PASSED), (FAILED, FAILED), (SKIPPED, SKIPPED)])
def test_an_entry_of_the_list_that_does_not_differ_is_an_error(gloo: Outcome, here: Outcome) -> None:
    found = compare({"test_a": gloo}, {"test_a": here}, {"test_a": "It cannot."}, {"test_a"})
    assert not found.ok
    assert "does not differ" in found.errors[0]


def test_an_entry_of_the_list_about_no_test_is_an_error_and_one_of_another_shard_is_not() -> None:
    found = compare({"test_a": PASSED}, {"test_a": PASSED}, {"test_b": "Why."}, {"test_a", "test_b"})
    assert found.ok
    found = compare({"test_a": PASSED}, {"test_a": PASSED}, {"test_z": "Why."}, {"test_a", "test_b"})
    assert found.errors == ("test_z: on the list of differences, but there is no such test",)


def test_a_test_that_gloo_has_no_record_of_is_an_error() -> None:
    assert "record gloo anew" in compare({}, {"test_a": PASSED}, {}, {"test_a"}).errors[0]


def test_what_gloo_cannot_is_no_error_and_is_told_if_it_passes_here() -> None:
    gloo = {"test_a": FAILED, "test_b": SKIPPED, "test_c": PASSED}
    found = compare(gloo, {"test_a": PASSED, "test_b": FAILED, "test_c": PASSED}, {}, set(gloo))
    assert (found.ok, found.better) == (True, ("test_a",))
    told = report(found, "weft")
    assert "gloo: 1 passed, 1 failed, 1 skipped" in told
    assert "weft: 2 passed, 1 failed, 0 skipped" in told


def test_the_list_needs_a_reason_and_tests_and_names_no_test_twice(tmp_path: Path) -> None:
    path = tmp_path / "differences.toml"
    path.write_text('[[difference]]\nreason = """It\n  cannot."""\ntests = ["test_a", "test_b"]\n')
    assert read_reasons(path) == {"test_a": "It cannot.", "test_b": "It cannot."}
    for wrong in (
        'reason = ""\ntests = ["test_a"]',
        'reason = "Why."',
        'reason = "Why."\ntests = ["a", "a"]',
    ):
        path.write_text(f"[[difference]]\n{wrong}\n")
        with pytest.raises(ValueError, match=r"differences\.toml"):
            read_reasons(path)


def test_the_list_and_the_record_that_are_kept_fit_each_other() -> None:
    records = [read_record(path) for path in command.HERE.glob("gloo-*.json")]
    assert records
    for record in records:
        assert command.record_path(record.torch, record.ranks).exists()
        for test in read_reasons(command.REASONS):
            assert record.outcomes[test].result == "passed", f"{test} does not pass on gloo {record.torch}"


def test_a_journal_gives_back_what_came_of_tests_also_when_its_writer_was_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert read_journal(journal) == []
    write_entry(journal, Entry("test_a"))
    write_entry(journal, Entry("test_a", PASSED))
    write_entry(journal, Entry("test_b"))
    with journal.open("a") as file:
        file.write('{"test":"test_b","outc')
    assert read_journal(journal) == [Entry("test_a"), Entry("test_a", PASSED), Entry("test_b")]
    assert outcomes_of(read_journal(journal)) == {"test_a": PASSED}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record("gloo", "2.13.0", "3.11.7", 4, "2026-11-17", "command", {"b": FAILED, "a": PASSED})
    write_record(tmp_path / "record", record)
    assert read_record(tmp_path / "record") == record


def test_the_reason_is_the_error_of_the_first_rank_that_failed() -> None:
    text = textwrap.dedent("""\
        Traceback (most recent call last):
          File "case.py", line 1, in run
        RuntimeError: Process 1 exited with error code 10 and exception:
        Traceback (most recent call last):
          File "distributed_test.py", line 9, in test_a
            work: ignored
        weft.errors.InputError: all_reduce: sparse tensors are not summed

        Process 2 exited with error code 10 and exception:
        ValueError: later
    """)
    assert reason_of(text) == "weft.errors.InputError: all_reduce: sparse tensors are not summed"


def test_only_the_name_of_the_backend_is_translated() -> None:
    source = textwrap.dedent('''\
        """Tests of gloo."""
        if BACKEND != "gloo" and backend in {"nccl", "gloo"}:
            skip(f"gloo: {dist.Backend.GLOO}", "Only gloo can", gloo_name, "cpu:gloo,cuda:nccl")
    ''')
    assert ast.unparse(translated(source, "weft")).splitlines() == [
        '"""Tests of gloo."""',
        "if BACKEND != 'weft' and backend in {'nccl', 'weft'}:",
        "    skip(f'gloo: {dist.Backend.WEFT}', 'Only gloo can', gloo_name, 'cpu:weft,cuda:nccl')",
    ]


def test_a_module_is_translated_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite_sample.py").write_text('NAME = "gloo"\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    translate("weft", ["suite_sample"])
    assert importlib.import_module("suite_sample").NAME == "weft"
    with pytest.raises(RuntimeError, match="imported before"):
        translate("weft", ["suite_sample"])
    del sys.modules["suite_sample"]


def test_groups_of_a_backend_are_counted_as_torch_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = pytest.importorskip("torch.distributed")
    monkeypatch.setattr(dist.Backend, "_plugins", {})
    dist.Backend._plugins["WEFT"] = dist.Backend._BackendPlugin(lambda *given: given, extended_api=True)
    census = Census()
    census.watch("weft")
    assert dist.Backend._plugins["WEFT"].creator_fn("store", None) == ("store", None)
    assert census.groups == 1


def test_a_run_goes_on_after_the_tests_that_are_in_the_journal(tmp_path: Path) -> None:
    setting = Setting("weft", 4, 10, tmp_path / "journal", tmp_path / "log")
    write_entry(setting.journal, Entry("test_a", PASSED))
    write_entry(setting.journal, Entry("test_of_another_shard", FAILED))
    told: list[str] = []
    assert Watch(setting, ["test_a"], told.append).run(1.0, {}) == {"test_a": PASSED}
    assert told == []


WORKER = """
import os, sys, time
sys.path.insert(0, {tools!r})
from pathlib import Path
from torch_suite.outcomes import Entry, Outcome, write_entry
for name in sys.stdin.read().split():
    write_entry(Path(sys.argv[1]), Entry(name))
    if name == "test_dies":
        os._exit(7)
    if name == "test_hangs":
        time.sleep(60)
    write_entry(Path(sys.argv[1]), Entry(name, Outcome("passed", 0.5)))
"""


def test_a_test_that_hangs_or_ends_the_worker_has_failed_and_the_rest_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.py").write_text(WORKER.format(tools=str(command.HERE.parent)))
    monkeypatch.setattr(watch, "GRACE_S", 0.5)
    monkeypatch.setattr(watch, "START_S", 0.0)
    own = (sys.executable, str(tmp_path / "worker.py"))
    setting = Setting("weft", 4, 6, tmp_path / "journal", tmp_path / "log", own)
    told: list[str] = []
    found = Watch(setting, ["test_a", "test_dies", "test_b", "test_hangs", "test_c"], told.append).run(
        1.0, {}
    )
    assert {test: outcome.result for test, outcome in found.items()} == {
        "test_a": "passed",
        "test_dies": "failed",
        "test_b": "passed",
        "test_hangs": "failed",
        "test_c": "passed",
    }
    assert found["test_dies"].reason == "the worker ended with 7"
    assert found["test_hangs"].reason == "no end within 6 s"
    assert len(told) == 5
    assert told[0].startswith("[1/5] passed test_a 0.5 s; ")


def test_a_worker_that_cannot_start_is_told_and_not_tried_for_ever(tmp_path: Path) -> None:
    setting = Setting("weft", 4, 1, tmp_path / "journal", tmp_path / "log", (sys.executable, "-c", "1 / 0"))
    with pytest.raises(RuntimeError, match="cannot start"):
        Watch(setting, ["test_a"], print).run(1.0, {})


@pytest.mark.parametrize("name", ["comparison", "outcomes", "shards", "translation", "watch"])
def test_examples_of_the_driver_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"torch_suite.{name}")).failed == 0


def test_a_run_ends_when_its_time_is_up(tmp_path: Path) -> None:
    setting = Setting("weft", 4, 10, tmp_path / "journal", tmp_path / "log")
    assert Watch(setting, ["test_a"], print).run(0.0, {}) == {}


@pytest.mark.parametrize("words", [["--record"], ["--record", "--backend", "gloo", "--shard", "1/2"]])
def test_only_a_whole_run_of_gloo_is_kept(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(words)
    assert "--record keeps a whole run of gloo" in capsys.readouterr().err
