"""The order between streams: on a CPU, whose streams torch has for code that works on any device."""

from __future__ import annotations

import time

import pytest
import torch

from weft.torch.dear.streams import Streams, make_clock


class Recorded:
    """A device's streams as torch shows them, with what waited for what."""

    def __init__(self) -> None:
        self.now = "a"
        self.waits: list[tuple[str, str]] = []

    def current_stream(self, _: torch.device) -> Stream:
        return Stream(self, self.now)


class Stream:
    def __init__(self, device: Recorded, name: str) -> None:
        self.device, self.name = device, name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.name == other.name

    __hash__ = None

    def wait_stream(self, other: Stream) -> None:
        self.device.waits.append((self.name, other.name))


def test_the_last_stream_waits_for_every_other_once() -> None:
    streams, device = Streams(torch.device("cpu")), Recorded()
    streams._module = device
    for name in "abab":
        device.now = name
        streams.note()
    device.now = "c"
    streams.join()
    assert device.waits == [("c", "a"), ("c", "b")]
    streams.join()
    assert len(device.waits) == 2


def test_one_stream_waits_for_nothing() -> None:
    streams = Streams(torch.device("cpu"))
    streams.note()
    streams.join()


def test_the_clock_of_an_accelerator_is_read_when_its_work_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    over = []

    class Module:
        synchronize = staticmethod(over.append)

    monkeypatch.setattr(torch, "get_device_module", lambda _: Module)
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    clock = make_clock([second, torch.device("cpu"), first, second])
    assert over == []
    assert clock() <= time.perf_counter()
    assert over == [first, second]


def test_the_clock_of_a_cpu_is_the_usual_one() -> None:
    assert make_clock([torch.device("cpu")]) is time.perf_counter
