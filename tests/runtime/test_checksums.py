"""The checksum of data that crosses a network, and who has to agree on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import finish, start_ranks

from weft import _runtime
from weft.errors import InputError
from weft.runtime.transport.rank_transport import carries_checksums, wants_checksums

JOBS = Path(__file__).with_name("jobs")


def test_the_checksum_is_crc_32c() -> None:
    # The check value of CRC-32/ISCSI, and the vectors of RFC 3720, appendix B.4.
    assert _runtime.crc32c(b"123456789") == 0xE3069283
    assert _runtime.crc32c(bytes(32)) == 0x8A9136AA
    assert _runtime.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert _runtime.crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(max_size=200), st.integers(1, 300), st.integers(0, 60_000))
def test_the_instruction_and_the_tables_agree_and_pieces_continue_each_other(
    seed: bytes, times: int, cut: int
) -> None:
    data = (seed or b"\0") * times
    whole = _runtime.crc32c(data)
    assert whole == _runtime.crc32c(data, portable=True)
    assert whole == _runtime.crc32c(data[cut:], _runtime.crc32c(data[:cut]))


@pytest.mark.parametrize(
    ("wanted", "within", "between"), [(None, False, True), (True, True, True), (False, False, False)]
)
def test_data_between_machines_is_checked_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, wanted: bool | None, within: bool, between: bool
) -> None:
    monkeypatch.delenv("WEFT_CHECKSUMS", raising=False)
    found = wants_checksums(wanted)
    assert (carries_checksums(found, 1), carries_checksums(found, -1)) == (within, between)


SETTING = JOBS / "checksums_setting.py"


def test_ranks_that_do_not_agree_on_checksums_are_refused(tmp_path: Path) -> None:
    said = [f"on {which} by rank {rank}" for rank, which in enumerate(("no socket", "all sockets"))]
    for rank, (code, output) in enumerate(finish(start_ranks(tmp_path, 2, SETTING))):
        sent = " and ".join((said[rank], said[1 - rank]))
        assert (code, output) == (0, f"checksums are sent {sent}; set all ranks alike\n")


@pytest.mark.parametrize("said", ["yes", "2", ""])
def test_a_setting_that_is_neither_0_nor_1_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("WEFT_CHECKSUMS", said)
    with pytest.raises(InputError, match="WEFT_CHECKSUMS"):
        wants_checksums(None)
