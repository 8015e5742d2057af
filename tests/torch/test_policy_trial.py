"""A trial of policies: the model's choice stays, unless another policy was faster beyond noise."""

from __future__ import annotations

import pytest

from weft.torch.dear.policy_trial import PolicyTrial
from weft.training import AlphaBeta, Layer, Linear, PolicyChoice, best


def chosen() -> PolicyChoice:
    """A choice of DeAR before WFBP."""
    layers = [Layer(str(number), 1_000_000, 0.01, 0.02) for number in range(8)]
    half = AlphaBeta(0.0, 2e-8)
    choice = best(layers, Linear(half, half, AlphaBeta(0.0, 4e-8)))
    assert [option.policy for option in (choice, *choice.others)] == ["dear", "wfbp"]
    return choice


def try_policies(choice: PolicyChoice, *seconds: float) -> PolicyChoice:
    """Tell a trial the times of its turns, in order."""
    trial = PolicyTrial(choice)
    for each in seconds:
        assert trial.ask() is not None
        trial.tell(each)
    assert trial.ask() is None
    return trial.result()


def test_both_policies_have_their_turns_with_their_own_fusion() -> None:
    choice = chosen()
    trial = PolicyTrial(choice)
    asked = []
    while (option := trial.ask()) is not None:
        asked.append((option.policy, option.threshold_bytes))
        trial.tell(1.0)
    each = [(option.policy, option.threshold_bytes) for option in (choice, *choice.others)]
    assert asked == each * 2


@pytest.mark.parametrize(
    ("seconds", "policy"),
    [
        ((1.0, 2.0, 1.0, 2.0), "dear"),
        ((1.0, 0.995, 1.0, 0.995), "dear"),
        ((1.0, 0.98, 1.0, 0.98), "wfbp"),
        ((1.0, 3.0, 1.0, 0.9), "wfbp"),
        ((0.9, 1.0, 5.0, 1.0), "dear"),
    ],
)
def test_the_faster_policy_stays_by_its_better_turn(seconds: tuple[float, ...], policy: str) -> None:
    choice = chosen()
    result = try_policies(choice, *seconds)
    assert result.policy == policy
    taken = choice if policy == "dear" else choice.others[0]
    assert (result.threshold_bytes, result.groups) == (taken.threshold_bytes, taken.groups)
    assert {option.policy for option in result.others} == {"dear", "wfbp"} - {policy}


def test_the_reason_has_the_times_and_what_was_expected() -> None:
    choice = chosen()
    result = try_policies(choice, 2.0, 1.0, 2.0, 1.0)
    tried = "wfbp: when tried, an iteration took 1 s with wfbp and 2 s with dear"
    expected = "; the model of an iteration had chosen dear: an iteration should take "
    assert result.reason.startswith(f"{tried}{expected}")
