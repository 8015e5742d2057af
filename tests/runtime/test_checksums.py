"""The checksum of data that crosses a network, and who has to agree on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import finish, start_ranks

from weft import _runtime

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


SETTING = JOBS / "checksums_setting.py"


def test_ranks_that_do_not_agree_on_checksums_are_refused(tmp_path: Path) -> None:
    for code, output in finish(start_ranks(tmp_path, 2, SETTING)):
        assert (code, output) == (0, "rank 1 sends checksums and rank 0 does not; set all ranks alike\n")


@pytest.mark.parametrize("said", ["yes", "2", ""])
def test_a_setting_that_is_neither_0_nor_1_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    from weft.errors import InputError
    from weft.runtime.transport.rank_transport import wants_checksums

    monkeypatch.setenv("WEFT_CHECKSUMS", said)
    with pytest.raises(InputError, match="WEFT_CHECKSUMS"):
        wants_checksums(None)
