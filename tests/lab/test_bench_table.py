"""The table of ``weft lab bench``."""

from __future__ import annotations

import pytest

from weft.cli.lab import _print
from weft.lab.contest import EntrantResult


def test_the_table_of_a_contest_fits_80_columns_with_its_slowest_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [
        ("weft", "flexreduce", 0.159),
        ("weft double_binary_tree", "double_binary_tree", 0.316),
        ("gloo, rank order", "ring", 2.314),
        ("mpi", None, 12.5),
    ]
    results = [
        EntrantResult(
            name,
            name.split()[0],
            algorithm,
            predicted_seconds=0.157 if algorithm else None,
            seconds=[median, 1.1 * median],
            median_seconds=median,
        )
        for name, algorithm, median in rows
    ]
    _print(results)
    printed = capsys.readouterr().out
    assert "no room for" not in printed
    assert "slowest" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert [line.split()[:2] for line in printed.splitlines()[3:5]] == [
        ["weft", "flexreduce"],
        ["weft", "double_binary_tree"],
    ]
