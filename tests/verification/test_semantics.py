"""What the verifier accepts, what it rejects, and whether it names the culprit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.handmade import (
    HANDMADE,
    SMALL_TOPOLOGIES,
    careless_all_reduce,
    chain_broadcast,
    exchange_all_reduce,
    ring_all_reduce,
    staged_reduce,
    star_reduce,
    weightless_all_reduce,
)
from support.oracle import accepts

import weft
from weft.errors import VerificationError
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.ir import TRANSFER_COLUMNS
from weft.topology import load_topology
from weft.verification.semantics import check_semantics


def without(schedule: Schedule, *rows: int) -> Schedule:
    keep = np.setdiff1d(np.arange(schedule.transfers), rows)
    columns = {name: getattr(schedule, name) for name in TRANSFER_COLUMNS}
    return replace(schedule, **{name: column[keep] for name, column in columns.items() if column is not None})


def problem_of(schedule: Schedule) -> VerificationError:
    problem = check_semantics(schedule)
    assert problem is not None
    assert not accepts(schedule)
    return problem


@pytest.mark.parametrize("make", HANDMADE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("spec", SMALL_TOPOLOGIES)
def test_right_schedules_are_accepted(make, spec: str) -> None:
    schedule = make(load_topology(spec))
    assert accepts(schedule)
    weft.verify(schedule)


def test_a_schedule_without_transfers_leaves_everyone_without() -> None:
    empty = ScheduleBuilder(load_topology("ring:3"), "broadcast", "none", chunks=1, root=2).build()
    problem = problem_of(empty)
    assert (problem.transfer, problem.rank, problem.chunk) == (None, 0, 0)
    assert (
        str(problem) == "semantics: rank 0, chunk 0: the result is undefined: rank 0 never receives chunk 0"
    )


def test_a_sum_that_nobody_sends_lacks_everyone_else() -> None:
    empty = ScheduleBuilder(load_topology("ring:4"), "reduce", "none", chunks=1, root=1).build()
    assert str(problem_of(empty)) == (
        "semantics: rank 1, chunk 0: the sum lacks ranks 0, 2, 3; nothing is ever sent to it"
    )


def test_a_dropped_transfer_is_missed_by_the_rank_it_would_have_reached() -> None:
    problem = problem_of(without(chain_broadcast(load_topology("ring:4")), 8))
    assert problem.check == "semantics"
    assert "the result is undefined" in str(problem)


def test_the_error_names_rank_chunk_and_the_transfer_that_is_missing() -> None:
    schedule = star_reduce(load_topology("switch:6"))
    row = int(np.flatnonzero((schedule.src == 3) & (schedule.chunk == 1))[0])
    problem = problem_of(without(schedule, row))
    assert (problem.check, problem.rank, problem.chunk) == ("semantics", 5, 1)
    assert problem.problem == (
        "the sum lacks rank 3: no transfer takes what rank 3 contributes to another rank in time"
    )
    assert problem.transfer is None


def test_a_result_that_others_hold_and_nobody_sends_is_said_to_be_held_by_them() -> None:
    schedule = ring_all_reduce(load_topology("ring:4"))
    problem = problem_of(without(schedule, schedule.transfers - 1))
    dropped = int(schedule.dst[-1])
    assert problem.rank == dropped
    assert problem.transfer is None
    others = ", ".join(str(rank) for rank in range(4) if rank != dropped)
    assert f"ranks {others} hold all of it (rank " in str(problem)
    assert str(problem).endswith(f"and no later transfer brings it to rank {dropped}")


def test_a_contribution_that_stops_half_way_is_followed_to_where_it_stops() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "reduce", "chain", chunks=1)
    builder.add(step=[0, 2, 1], chunk=0, src=[3, 2, 1], dst=[2, 1, 0], op=Op.REDUCE)
    problem = problem_of(builder.build())
    assert (
        problem.problem
        == "the sum lacks ranks 2, 3: what rank 2 contributes comes to ranks 1, 2 and no further"
    )


def test_a_complete_result_that_is_overwritten_is_blamed_on_the_transfer_that_did_it() -> None:
    builder = ScheduleBuilder(load_topology("ring:3"), "reduce", "spoilt", chunks=1)
    builder.add(step=[0, 1], chunk=0, src=[1, 2], dst=[0, 0], op=Op.REDUCE)
    builder.add(step=2, chunk=0, src=1, dst=0, op=Op.COPY)
    problem = problem_of(builder.build())
    assert (problem.transfer, problem.problem) == (2, "the sum lacks ranks 0, 2")


def test_a_contribution_counted_again_is_traced_to_the_transfer_that_did_it() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "reduce", "loop", chunks=1)
    builder.add(step=[0, 1, 2, 3], chunk=0, src=[3, 2, 3, 1], dst=[2, 1, 1, 0], op=Op.REDUCE)
    problem = problem_of(builder.build())
    assert str(problem) == (
        "semantics: transfer 2, rank 0, chunk 0: the sum counts rank 3 more than once "
        "(doubled at transfer 2: rank 3 to 1, step 2)"
    )


def test_missing_and_doubled_are_named_together() -> None:
    builder = ScheduleBuilder(load_topology("ring:5"), "reduce", "loop", chunks=1)
    builder.add(step=[0, 1, 2, 3], chunk=0, src=[3, 3, 1, 2], dst=[1, 1, 0, 0], op=Op.REDUCE)
    assert str(problem_of(builder.build())) == (
        "semantics: transfer 1, rank 0, chunk 0: the sum lacks rank 4 and counts rank 3 more than once "
        "(doubled at transfer 1: rank 3 to 1, step 1): "
        "no transfer takes what rank 4 contributes to another rank in time"
    )


def test_many_missing_ranks_are_summarised() -> None:
    builder = ScheduleBuilder(load_topology("ring:200"), "reduce", "lazy", chunks=1)
    builder.add(step=0, chunk=0, src=1, dst=0, op=Op.REDUCE)
    problem = problem_of(builder.build()).problem
    assert problem.startswith("the sum lacks ranks 2, 3, 4, 5, 6, 7, 8, 9 and 190 more: no transfer takes")


def test_sending_before_holding_is_blamed_on_the_sender() -> None:
    builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "hasty", chunks=1)
    builder.add(step=[0, 0, 1], chunk=0, src=[0, 1, 2], dst=[1, 2, 3], op=Op.COPY)
    problem = problem_of(builder.build())
    assert (problem.transfer, problem.rank) == (1, 2)
    assert problem.problem == "the result is undefined: rank 1 sends chunk 0 at step 0 before it holds it"


def test_adding_to_nothing_is_blamed_on_the_place() -> None:
    schedule = staged_reduce(load_topology("ring:3"))
    op = schedule.op.copy()
    op[0] = Op.REDUCE
    problem = problem_of(replace(schedule, op=op))
    assert problem.transfer == 0
    assert (
        problem.problem
        == "the result is undefined: rank 0 adds to chunk 0 in slot 1 at step 0 before it holds it"
    )


def test_what_was_wrong_on_the_way_does_not_matter() -> None:
    assert check_semantics(careless_all_reduce(load_topology("switch:5"))) is None


def test_weightless_chunks_are_verified_too() -> None:
    schedule = weightless_all_reduce(load_topology("ring:4"))
    row = int(np.flatnonzero((schedule.chunk == 1) & (schedule.step == 0))[0])
    assert problem_of(without(schedule, row)).chunk == 1


def test_reads_of_a_step_precede_its_writes() -> None:
    exchange = exchange_all_reduce(load_topology("ring:2"))
    assert check_semantics(exchange) is None
    one_after_the_other = replace(exchange, step=np.arange(exchange.transfers))
    assert "counts rank 0 more than once" in str(problem_of(one_after_the_other))


@pytest.mark.parametrize("ops", [(Op.COPY, Op.COPY), (Op.COPY, Op.REDUCE), (Op.REDUCE, Op.COPY)])
def test_two_writes_of_a_place_in_one_step_are_a_hazard_unless_both_reduce(ops: tuple[Op, Op]) -> None:
    builder = ScheduleBuilder(load_topology("fullmesh:4"), "reduce", "clash", chunks=2)
    builder.add(step=0, chunk=[0, 1], src=1, dst=0, op=Op.REDUCE)
    builder.add(step=1, chunk=[0, 1], src=2, dst=0, op=Op.REDUCE)
    builder.add(step=2, chunk=0, src=[1, 2], dst=0, op=ops)
    problem = problem_of(builder.build())
    assert (problem.check, problem.rank, problem.chunk, problem.transfer) == ("hazard", 0, 0, 5)
    assert problem.problem.startswith("transfers 4 and 5 (")
    assert problem.problem.endswith("write chunk 0 at step 2; only reduces may share a place within a step")


def test_a_hazard_is_a_hazard_even_when_both_copies_carry_the_same_value() -> None:
    builder = ScheduleBuilder(load_topology("fullmesh:3"), "broadcast", "twice", chunks=1)
    builder.add(step=[0, 1, 1], chunk=0, src=[0, 0, 1], dst=[1, 2, 2], op=Op.COPY)
    assert problem_of(builder.build()).check == "hazard"


def test_different_slots_of_a_rank_are_different_places() -> None:
    schedule = staged_reduce(load_topology("ring:5"))
    assert check_semantics(schedule) is None
    assert schedule.dst_slot is not None
    meet = np.where(schedule.step == 0, 1, schedule.dst_slot)
    assert problem_of(replace(schedule, dst_slot=meet)).check == "hazard"


@pytest.mark.parametrize("ranks", [63, 64, 65, 130])
@pytest.mark.parametrize("block_bytes", [1, 4096, 1 << 20])
def test_the_answer_does_not_depend_on_the_memory_it_is_given(ranks: int, block_bytes: int) -> None:
    for make in (star_reduce, exchange_all_reduce, staged_reduce):
        schedule = make(load_topology(f"ring:{ranks}"))
        assert check_semantics(schedule, block_bytes=block_bytes) is None
        broken = without(schedule, schedule.transfers // 2, schedule.transfers // 3)
        assert str(check_semantics(broken, block_bytes=block_bytes)) == str(problem_of(broken))


def test_a_ring_of_some_size_is_accepted_and_one_changed_step_found() -> None:
    schedule = ring_all_reduce(load_topology("ring:150"))
    weft.verify(schedule)
    step = schedule.step.copy()
    step[20_000] += 1
    order = np.argsort(step, kind="stable")
    columns = {name: getattr(schedule, name)[order] for name in TRANSFER_COLUMNS[:6]} | {"step": step[order]}
    with pytest.raises(VerificationError, match=f"chunk {schedule.chunk[20_000]}"):
        weft.verify(replace(schedule, **columns))
