"""What has failed is raised wherever the user's thread comes by, as what it is."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import weft
from weft.runtime.handles import Handle, OperationFuture
from weft.torch.failures import DeferredFailures

LOST = weft.PeerLost(3, "host", 17, "all_reduce")


@pytest.fixture
def guard() -> Iterator[DeferredFailures]:
    made = DeferredFailures(timeout=30)
    yield made
    made.close()


def pending() -> tuple[Handle, OperationFuture]:
    handle = Handle()
    return handle, handle.future


def descend(tensor: torch.Tensor, hook: Any) -> None:
    """Run a backward pass that calls the hook."""
    tensor.register_hook(hook)
    (tensor * 2).sum().backward()


def test_the_first_failure_is_raised_again_and_again(guard: DeferredFailures) -> None:
    guard.check()
    for error in (LOST, weft.RuntimeFailure("of no further use")):
        work, future = pending()
        guard.started(work)
        future.set_exception(error)
    for _ in range(2):
        with pytest.raises(weft.PeerLost, match="rank 3") as caught:
            guard.check()
        assert caught.value.rank == 3
        assert caught.value.__cause__ is LOST


def test_no_optimizer_steps_after_a_failure(guard: DeferredFailures) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    guard.failed(LOST)
    with pytest.raises(weft.PeerLost):
        optimizer.step()
    assert weight.tolist() == [1.0, 1.0]
    guard.close()
    optimizer.step()
    assert weight.tolist() == [0.0, 0.0]


def test_a_guard_that_nobody_keeps_holds_up_nobody() -> None:
    guard = DeferredFailures(timeout=30)
    guard.failed(LOST)
    del guard
    gc.collect()
    weight = torch.nn.Parameter(torch.ones(2))
    torch.optim.SGD([weight], lr=1.0).step()


def test_a_backward_pass_ends_when_what_it_started_has(guard: DeferredFailures) -> None:
    tensor = torch.ones(3, requires_grad=True)
    work, future = pending()
    outside, _ = pending()
    guard.started(outside)  # never ends, and is none of the pass's business

    def start(gradient: torch.Tensor) -> None:
        guard.started(work)
        threading.Timer(0.2, future.set_result, [None]).start()

    descend(tensor, start)
    assert work.is_completed()
    guard.check()


def test_a_backward_pass_raises_what_has_failed_in_it(guard: DeferredFailures) -> None:
    tensor = torch.ones(3, requires_grad=True)
    work, future = pending()

    def start(gradient: torch.Tensor) -> None:
        guard.started(work)
        threading.Timer(0.2, future.set_exception, [LOST]).start()

    with pytest.raises(weft.PeerLost, match="rank 3"):
        descend(tensor, start)


def test_a_backward_pass_does_not_wait_for_ever(
    guard: DeferredFailures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.torch.failures._GRACE_S", 0.1)
    guard.timeout = 0.1
    tensor = torch.ones(3, requires_grad=True)
    work, _ = pending()
    with pytest.raises(weft.TimedOut, match="1 operations are under way"):
        descend(tensor, lambda gradient: guard.started(work))
