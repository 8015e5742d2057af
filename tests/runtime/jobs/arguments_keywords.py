"""Keywords that no operation has, and values that no option can have, are refused by name on every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def main() -> None:
    """Call every operation wrongly, then one rightly."""
    comm: Any = weft.init(timeout=20)
    peer = 1 - comm.rank
    calls = {
        "all_reduce": (np.ones(4),),
        "broadcast": (np.ones(4),),
        "reduce": (np.ones(4),),
        "reduce_scatter": (np.ones(4),),
        "all_gather": (np.ones(4),),
        "all_to_all": (np.ones(4),),
        "gather": (np.ones(4),),
        "scatter": (np.ones(4) if comm.rank == 0 else None, 0),
        "send": (np.ones(4), peer),
        "recv": (np.ones(4), peer),
    }
    for name, given in calls.items():
        call = getattr(comm, name)
        more = {"out": np.ones(2)} if name == "scatter" else {}
        for keyword in ("name", "timeot"):
            with pytest.raises(TypeError, match=f"{name}.*{keyword}"):
                call(*given, **more, **{keyword: "x"})
        with pytest.raises(weft.InputError, match="async_op 'no': expected True or False"):
            call(*given, **more, async_op="no")
        with pytest.raises(weft.InputError, match="timeout 'True': expected seconds"):
            call(*given, **more, timeout=True)
        with pytest.raises(weft.InputError, match="half of a surrogate pair"):
            call(*given, **more, kind="\ud800")
    array = np.full(4, comm.rank)
    call = comm.recv_parts if comm.rank else comm.send_parts
    call([peer], array, async_op=True).wait()
    assert (array == 0).all()
    total = comm.all_reduce(np.matrix(np.full((2, 6), comm.rank + 1.0)))
    assert (total == 3.0).all()
    with pytest.raises(TypeError, match=r"masked array.*array\.filled"):
        comm.all_reduce(np.ma.masked_array(np.ones(4), mask=[0, 1, 0, 0]))
    comm.close()


main()
