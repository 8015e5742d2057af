"""MultiTree's accelerator: cycles of an operator, counted exactly as its authors' simulator counts them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from weft.errors import InputError

if TYPE_CHECKING:
    from weft.training.workloads.operators import Operator, Product


@dataclass(frozen=True, slots=True)
class SystolicArray:
    """MultiTree's accelerator: processing elements with an output-stationary array each, a sample for each.

    Only matrix products and convolutions take time: neither memory nor activations are modelled. Both
    gradients are computed for every layer, and follow one another.

    Parameters
    ----------
    name, source
        For people.
    rows, columns
        Of each array.
    elements
        Processing elements; a larger batch takes several rounds.
    clock_hz
        Cycles per second.
    exact
        Count as the authors' simulator does; if False by the short formula, which is within 1 %.

    Examples
    --------
    >>> from weft.training.devices import find_device
    >>> from weft.training.workloads import Product
    >>> find_device("multitree-array").cycles(Product(13, 13, 384, 256, 3, 3))
    (110623, 165919, 104575)
    """

    name: str
    source: str
    rows: int = 32
    columns: int = 32
    elements: int = 16
    clock_hz: float = 1e9
    exact: bool = True

    @property
    def dtypes(self) -> tuple[str, ...]:
        """It computes in fp32 only."""
        return ("fp32",)

    def seconds(self, operator: Operator, batch: int, dtype: str) -> tuple[float, float]:
        """Seconds of the forward and the backward pass over a batch; it computes in `dtype` fp32 alone."""
        del dtype
        if operator.flops:
            msg = f"{self.name} needs shapes, and {operator.name} has only FLOPs; take another device"
            raise InputError(msg)
        rounds = ceil(batch / self.elements)
        forward = backward = 0
        for product in operator.products:
            first, inputs, weights = self.cycles(product)
            forward += product.count * first
            backward += product.count * (weights + (inputs if operator.input_gradient else 0))
        return rounds * forward / self.clock_hz, rounds * backward / self.clock_hz

    def cycles(self, product: Product) -> tuple[int, int, int]:
        """Cycles of one product: forward, gradient of the input, gradient of the weights."""
        window = product.kernel_height * product.kernel_width
        places = product.out_height * product.out_width
        pixels = product.height * product.width
        shapes = (
            (places, product.filters, window * product.channels),
            (pixels, product.channels, window * product.filters),
            (window * product.channels, product.filters, places),
        )
        if not self.exact:
            first, second, third = (self._short(*shape) for shape in shapes)
            return first, second, third
        return (
            self._forward(product, *shapes[0]),
            self._input_gradient(window, *shapes[1]),
            self._weight_gradient(*shapes[2]),
        )

    def share(self, *, compute: float = 1.0, memory_bandwidth: float = 1.0) -> SystolicArray:
        """Refuse: its memory is not modelled, and so nothing can be taken away from it.

        Raises
        ------
        InputError
            Unless all is left.
        """
        if compute == memory_bandwidth == 1:
            return self
        msg = f"{self.name} models no memory and no endpoint; take a device that does, such as ace-npu"
        raise InputError(msg)

    def _short(self, along: int, across: int, depth: int) -> int:
        """Folds back to back; none is shorter than the rows that it has to write out."""
        down, over, rest = self._folds(along, across)
        return over * ((down - 1) * max(depth, self.rows) + max(depth, rest))

    def _folds(self, along: int, across: int) -> tuple[int, int, int]:
        """Folds along the rows, across the columns, and the rows of the last fold."""
        down, over = ceil(along / self.rows), ceil(across / self.columns)
        return down, over, along - self.rows * (down - 1)

    def _forward(self, product: Product, along: int, across: int, depth: int) -> int:
        widths = self._widths(across)
        write = self._write(along, across, depth, widths)
        # The simulator does not round the result's height and width before it counts folds for this side.
        height = product.height - product.kernel_height + product.stride
        width = product.width - product.kernel_width + product.stride
        down = ceil(height * width / (product.stride**2 * self.rows))
        return max(write, self._read(along, across, depth, down))

    def _input_gradient(self, window: int, along: int, across: int, depth: int) -> int:
        down, over, _ = self._folds(along, across)
        write = self._write(along, across, window, [min(self.rows, along)] * over)
        return max(write, self._read(along, across, depth, down))

    def _weight_gradient(self, along: int, across: int, depth: int) -> int:
        over = self._folds(along, across)[1]
        write = self._write(along, across, depth, [min(self.rows, along)] * over)
        return max(write, self._read_rows(along, across, depth))

    def _widths(self, across: int) -> list[int]:
        """Columns that each fold across uses."""
        return [min(self.columns, across - first) for first in range(0, across, self.columns)]

    def _write(self, along: int, across: int, depth: int, starts: list[int]) -> int:
        """When the last result is written: `starts` are the cycles that a fold across needs to fill."""
        down, over, rest = self._folds(along, across)
        widths = self._widths(across)
        turns = sum(max(rest, depth + 1 + starts[fold] - rest - widths[fold - 1]) for fold in range(1, over))
        return depth + starts[0] - 1 + over * (down - 1) * max(depth, self.rows) + rest + turns

    def _read(self, along: int, across: int, depth: int, column_folds: int) -> int:
        """When the last operand is read, on either side."""
        over = self._folds(along, across)[1]
        columns = (across - 1) % self.columns + column_folds * depth * over
        if over > 1:
            columns = max(columns, self.columns - 1 + column_folds * depth * (over - 1))
        return columns if depth == 1 else max(columns, self._read_rows(along, across, depth))

    def _read_rows(self, along: int, across: int, depth: int) -> int:
        down, over, rest = self._folds(along, across)
        lag = max(rest - 1, self.rows - 1 - depth) if down > 1 else rest - 1
        return down * depth * over + lag
