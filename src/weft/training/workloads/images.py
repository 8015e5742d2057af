"""A picture on its way through a convolutional network: what its shape is, and which operators it met."""

from __future__ import annotations

from weft.training.workloads.operators import Operator, convolution, linear, normalisation, pointwise, pooling
from weft.training.workloads.workload import Workload


class Picture:
    """Collects operators; `shape` is height, width and channels after the last.

    Branches: keep `shape` before the first, and set it again before each.

    Parameters
    ----------
    side
        Height and width of the input in pixels, of three channels.

    Examples
    --------
    >>> picture = Picture(224)
    >>> picture.convolve("conv1", 64, 7, stride=2, padding=3)
    >>> picture.shape
    (112, 112, 64)
    """

    def __init__(self, side: int) -> None:
        self.shape = (side, side, 3)
        self.operators: list[Operator] = []

    @property
    def elements(self) -> int:
        """How many numbers the picture has."""
        height, width, channels = self.shape
        return height * width * channels

    def convolve(
        self,
        name: str,
        filters: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = False,
    ) -> None:
        """Convolve; the first operator of all needs no gradient of its input."""
        operator = convolution(
            name,
            self.shape,
            filters,
            _pair(kernel),
            stride=stride,
            padding=_pair(padding),
            bias=bias,
            input_gradient=bool(self.operators),
        )
        (product,) = operator.products
        self.operators.append(operator)
        self.shape = (product.out_height, product.out_width, filters)

    def normalise(self, name: str) -> None:
        """Add a batch normalisation."""
        self.operators.append(normalisation(name, self.elements, self.shape[2], over_batch=True))

    def activate(self, name: str) -> None:
        """Add a ReLU."""
        self.operators.append(pointwise(name, self.elements))

    def add(self, name: str) -> None:
        """Add a picture of the same shape."""
        self.operators.append(pointwise(name, self.elements, 3, 3))

    def concatenate(self, name: str, channels: int) -> None:
        """Copy branches into one picture of so many channels."""
        self.shape = (*self.shape[:2], channels)
        self.operators.append(pointwise(name, self.elements, 2, 2))

    def pool(self, name: str, kernel: int, *, stride: int = 1, padding: int = 0) -> None:
        """Maximum or mean over windows."""
        before = self.elements
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in self.shape[:2])
        self.shape = (height, width, self.shape[2])
        self.operators.append(pooling(name, before, self.elements))

    def pool_to(self, name: str, side: int) -> None:
        """Mean over as many windows as give this side."""
        before = self.elements
        self.shape = (side, side, self.shape[2])
        self.operators.append(pooling(name, before, self.elements))

    def classify(self, name: str, outputs: int) -> None:
        """Multiply all of it, as one vector, by a matrix with bias."""
        self.operators.append(linear(name, self.elements, outputs))
        self.shape = (1, 1, outputs)

    def workload(self, name: str, summary: str, batch: int, source: str) -> Workload:
        """Give what was collected, with a loss at its end, as a model to train."""
        self.operators.append(pointwise("loss", self.elements))
        return Workload(name, summary, tuple(self.operators), batch, source)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
