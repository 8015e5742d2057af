"""Notes that rank 0 leaves for the others: what hostile neighbours and earlier jobs cannot do to them."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.jobs import finish

from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime import Place, join
from weft.runtime.bootstrap.secret_note import FileExchange, SecretNote, StoreExchange

NOTE = SecretNote(4000, b"s" * 32)
OTHER_USER = 54_321


@pytest.fixture(params=["XDG_RUNTIME_DIR", "TMPDIR"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where notes lie; it does not exist where it would be made."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    if request.param == "TMPDIR":
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        return tmp_path / f"weft-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run"


def test_a_note_is_read_as_it_was_left_and_only_by_its_owner(folder: Path) -> None:
    exchange = FileExchange("job")
    assert exchange.read(1) is None
    exchange.leave(NOTE, 1)
    assert exchange.read(1) == NOTE
    assert FileExchange("another job").read(1) is None
    (path,) = folder.iterdir()
    assert str(path) == str(exchange)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    exchange.remove()
    exchange.remove()  # again does no harm
    assert exchange.read(1) is None
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("room", [0, 20])
def test_a_full_disk_is_said_and_no_part_of_a_note_is_left(folder: Path, room: int) -> None:
    exchange, before = FileExchange("job"), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert str(exchange).startswith(str(folder))  # Python finds its temporary folder by writing to it
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            exchange.leave(NOTE, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert exchange.read(1) is None
    assert not list(folder.iterdir())


def test_what_an_earlier_job_left_is_replaced(folder: Path) -> None:
    exchange = FileExchange("job")
    exchange.leave(NOTE, 1)
    Path(f"{exchange}.new").write_text("half a no")
    later = SecretNote(4001, b"t" * 32)
    exchange.leave(later, 1)
    assert exchange.read(1) == later
    assert [path.name for path in folder.iterdir()] == [Path(str(exchange)).name]


@pytest.mark.parametrize("text", [b"", b"4000", b"4000 abc\n", b"x" * 4096])
def test_what_is_no_note_is_none(folder: Path, text: bytes) -> None:
    exchange = FileExchange("job")
    exchange.leave(NOTE, 1)
    Path(str(exchange)).write_bytes(text)
    assert exchange.read(1) is None


@pytest.mark.parametrize("harm", ["mode", "owner", "link", "file"])
def test_a_folder_that_others_could_have_made_is_refused(folder: Path, tmp_path: Path, harm: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if harm == "mode":
        folder.chmod(0o755)
    elif harm == "owner":
        os.chown(folder, OTHER_USER, OTHER_USER)
    else:
        folder.rmdir()
        (tmp_path / "mine").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "mine") if harm == "link" else folder.touch()
    for attempt in (lambda: FileExchange("job").leave(NOTE, 1), lambda: FileExchange("job").read(1)):
        with pytest.raises(InputError, match=r"its folder .*; or set WEFT_SECRET and WEFT_PORT"):
            attempt()


@pytest.mark.parametrize("harm", ["mode", "owner", "pipe", "link"])
def test_a_note_that_others_could_have_left_is_refused(folder: Path, tmp_path: Path, harm: str) -> None:
    exchange = FileExchange("job")
    exchange.leave(NOTE, 1)
    path = Path(str(exchange))
    if harm == "mode":
        path.chmod(0o644)
    elif harm == "owner":
        os.chown(path, OTHER_USER, OTHER_USER)
    else:
        path.rename(tmp_path / "moved")
        os.mkfifo(path, 0o600) if harm == "pipe" else path.symlink_to(tmp_path / "moved")
    with pytest.raises((InputError, OSError), match=r"file of your own with mode 600|symbolic links"):
        exchange.read(1)


def test_a_runtime_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    with pytest.raises(InputError, match="XDG_RUNTIME_DIR names no folder"):
        FileExchange("job").leave(NOTE, 1)


RANK = """
import sys
from weft.runtime import Place, join
from weft.runtime.bootstrap.secret_note import FileExchange

place = Place(int(sys.argv[1]), 2, address="127.0.0.1", secret_exchange=FileExchange("job"))
with join(place, timeout=30) as control_plane:
    control_plane.barrier(20)
"""


def test_ranks_meet_in_spite_of_a_note_of_an_earlier_job(folder: Path) -> None:
    FileExchange("job").leave(SecretNote(9, b"old secret".ljust(32)), 1)
    words = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*words, rank], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in ("1", "0")
    ]
    assert finish(ranks) == [(0, ""), (0, "")]
    assert not folder.exists() or not list(folder.iterdir())


def test_a_rank_that_finds_no_note_says_where_it_looked(folder: Path) -> None:
    place = Place(1, 2, address="127.0.0.1", secret_exchange=FileExchange("job"))
    with pytest.raises(TimedOut, match=f"rank 1: rank 0 has left no note at {folder}"):
        join(place, timeout=0.2)


def test_a_rank_0_that_nobody_joins_takes_its_note_away(folder: Path) -> None:
    place = Place(0, 2, address="127.0.0.1", secret_exchange=FileExchange("job"))
    with pytest.raises(TimedOut, match="rank 1"):
        join(place, timeout=0.2)
    assert not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_store_that_does_not_answer_is_named(rank: int) -> None:
    place = Place(rank, 2, address="127.0.0.1", secret_exchange=StoreExchange("127.0.0.1", 9, "job"))
    with pytest.raises(RuntimeFailure, match=r"torchrun's store at 127\.0\.0\.1:9"):
        join(place, timeout=0.5)
