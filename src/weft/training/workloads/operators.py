"""What layers compute: operators with shapes, from which work follows for any batch and number format.

Conventions, the same for every operator:

- FLOPs are those of matrix products and convolutions, 2 per multiplication with addition. Whatever works
  element by element is bound by memory on every device here, and counts by its bytes alone.
- Backward of a product is two products as large as itself: gradient of the input, gradient of the weights. An
  operator that reads the data itself (`input_gradient` False) needs only the second.
- Bytes are those of kernels that each read their inputs from memory and write their results to it once;
  caches that keep something from one kernel to the next are not modelled. Activations count per sample,
  weights and their gradients once per batch.
- Dropout and loss are operators like others; the optimizer's update is not one, and costs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from weft.errors import InputError

ELEMENT_BYTES: Final = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a number in memory; tf32 is a way to multiply, numbers stay fp32."""


@dataclass(frozen=True, slots=True)
class Product:
    """A convolution of one sample; a matrix product is one with 1x1 filters on an input of one column.

    Parameters
    ----------
    height, width, channels
        Of the input, padding included.
    filters
        How many.
    kernel_height, kernel_width, stride
        Of each filter.
    count
        How often a sample needs it: groups, heads, steps.

    Examples
    --------
    >>> Product(height=56, width=56, channels=64, filters=64).flops
    25690112
    """

    height: int
    width: int
    channels: int
    filters: int
    kernel_height: int = 1
    kernel_width: int = 1
    stride: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        sizes = (self.height, self.width, self.channels, self.filters, self.stride, self.count)
        if min(*sizes, self.kernel_height, self.kernel_width) < 1:
            raise InputError(f"{self}: every size is at least 1")
        if self.kernel_height > self.height or self.kernel_width > self.width:
            msg = f"{self}: the filter does not fit into the input; take a larger input, or pad it"
            raise InputError(msg)

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height - self.kernel_height) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return (self.width - self.kernel_width) // self.stride + 1

    @property
    def weights(self) -> int:
        """Numbers in the filters of one of `count`."""
        return self.kernel_height * self.kernel_width * self.channels * self.filters

    @property
    def flops(self) -> int:
        """FLOPs of the forward pass of one sample, all `count` products together."""
        return 2 * self.out_height * self.out_width * self.weights * self.count


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one pass of an operator asks of a device."""

    flops: int
    bytes: int
    kernels: int


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of a model.

    Parameters
    ----------
    name
        Of the module.
    tensors
        Numbers in each trainable tensor that is this module's own, in the order of registration.
    products
        Of one sample.
    forward_elements, backward_elements
        Numbers that are read and written for each sample.
    forward_weights, backward_weights
        Numbers that are read and written once for a batch.
    kernels
        Launched forward, and backward.
    input_gradient
        Whether backward computes the gradient of the input.
    exchange
        Numbers per sample that every rank then sends to the others, and the name of the operator that waits
        for them; the operator's own parameters are spread over the ranks, and `tensors` is empty.
    with_next
        It belongs to the layer of the operator after it, not to that before.
    tied
        Its weights are those of the first operator of the model.
    flops
        Of one sample forward, in addition to those of `products`: where shapes are not known.
    """

    name: str
    tensors: tuple[int, ...] = ()
    products: tuple[Product, ...] = ()
    forward_elements: int = 0
    backward_elements: int = 0
    forward_weights: int = 0
    backward_weights: int = 0
    kernels: tuple[int, int] = (1, 1)
    input_gradient: bool = True
    exchange: tuple[int, str] | None = None
    with_next: bool = False
    tied: bool = False
    flops: int = 0

    @property
    def starts_layer(self) -> bool:
        """Whether this is a module with parameters of its own."""
        return bool(self.tensors) or self.exchange is not None

    def forward(self, batch: int, element_bytes: int) -> OperatorWork:
        """Work of the forward pass over a batch."""
        flops = self.flops + sum(product.flops for product in self.products)
        moved = batch * self.forward_elements + self.forward_weights
        return OperatorWork(batch * flops, moved * element_bytes, self.kernels[0])

    def backward(self, batch: int, element_bytes: int) -> OperatorWork:
        """Work of the backward pass over a batch."""
        flops = self.flops + sum(product.flops for product in self.products)
        flops *= 2 if self.input_gradient else 1
        moved = batch * self.backward_elements + self.backward_weights
        return OperatorWork(batch * flops, moved * element_bytes, self.kernels[1])


def convolution(
    name: str,
    shape: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int],
    *,
    stride: int = 1,
    padding: tuple[int, int] = (0, 0),
    groups: int = 1,
    bias: bool = False,
    input_gradient: bool = True,
) -> Operator:
    """Convolve an image of `shape`: height, width, channels.

    Examples
    --------
    >>> stem = convolution("conv1", (224, 224, 3), 64, (7, 7), stride=2, padding=(3, 3))
    >>> stem.tensors, stem.forward(1, 4).flops
    ((9408,), 236027904)
    """
    height, width, channels = shape
    if channels % groups or filters % groups:
        msg = f"{name}: {channels} channels and {filters} filters must be multiples of its {groups} groups"
        raise InputError(msg)
    padded = height + 2 * padding[0], width + 2 * padding[1]
    product = Product(*padded, channels // groups, filters // groups, *kernel, stride, groups)
    weights = product.weights * groups
    tensors = (weights, filters) if bias else (weights,)
    inputs, outputs = height * width * channels, product.out_height * product.out_width * filters
    return _weighted(name, tensors, product, inputs, outputs, sum(tensors), input_gradient)


def linear(
    name: str,
    inputs: int,
    outputs: int,
    *,
    rows: int = 1,
    bias: bool = True,
    tied: bool = False,
    input_gradient: bool = True,
) -> Operator:
    """Multiply `rows` vectors of a sample by a matrix; a `tied` one is the tensor of the first module.

    Examples
    --------
    >>> linear("fc", 2048, 1000).tensors
    (2048000, 1000)
    """
    product = Product(rows, 1, inputs, outputs)
    own = () if tied else (product.weights,)
    tensors = (*own, outputs) if bias else own
    weighted = _weighted(
        name, tensors, product, rows * inputs, rows * outputs, product.weights, input_gradient
    )
    return replace(weighted, tied=tied)


def _weighted(
    name: str,
    tensors: tuple[int, ...],
    product: Product,
    inputs: int,
    outputs: int,
    weights: int,
    input_gradient: bool,
) -> Operator:
    """A product with weights: each of its three passes reads two operands and writes one."""
    passes = 2 if input_gradient else 1
    return Operator(
        name,
        tensors,
        (product,),
        forward_elements=inputs + outputs,
        backward_elements=passes * (inputs + outputs),
        forward_weights=weights,
        backward_weights=passes * weights,
        kernels=(1, passes),
        input_gradient=input_gradient,
    )


def normalisation(name: str, elements: int, features: int, *, over_batch: bool) -> Operator:
    """Batch or layer normalisation with scale and shift.

    Over a batch, statistics need a pass of their own: forward reads the input twice and writes once, backward
    reads input and gradient twice and writes once. A layer norm holds a row at a time, so forward needs one
    pass; backward needs a second one for the gradients of scale and shift.
    """
    return Operator(
        name,
        (features, features),
        forward_elements=(3 if over_batch else 2) * elements,
        backward_elements=5 * elements,
        forward_weights=2 * features,
        backward_weights=4 * features,
        kernels=(1, 1) if over_batch else (1, 2),
    )


def root_mean_square(name: str, elements: int, features: int) -> Operator:
    """Normalisation by the root of the mean square, with a scale: as a layer norm, without its shift."""
    return replace(
        normalisation(name, elements, features, over_batch=False),
        tensors=(features,),
        forward_weights=features,
        backward_weights=2 * features,
    )


def pointwise(name: str, elements: int, forward: int = 2, backward: int = 3) -> Operator:
    """Element by element; `forward` and `backward` say how often each element is read or written.

    The defaults are those of an activation: forward reads and writes, backward reads the gradient and what
    was kept, and writes. A sum of two has 3 and 3 (backward adds up gradients where paths part), a copy 2 and
    2.
    """
    return Operator(name, forward_elements=forward * elements, backward_elements=backward * elements)


def pooling(name: str, inputs: int, outputs: int) -> Operator:
    """Maximum or mean over windows; backward reads the gradient, and where it goes, and writes it there."""
    return Operator(name, forward_elements=inputs + outputs, backward_elements=inputs + 2 * outputs)


def attention(name: str, tokens: int, width: int, heads: int) -> Operator:
    """Products of queries with keys and of weights with values; scale, mask, softmax and dropout between.

    Each of these is a kernel of its own that reads and writes the table of weights, as in the model code of
    BERT; a fused kernel (FlashAttention) would move much less.
    """
    if width % heads:
        raise InputError(f"{name}: a width of {width} is no multiple of {heads} heads")
    table = heads * tokens * tokens
    vectors = 4 * tokens * width
    return Operator(
        name,
        products=(
            Product(tokens, 1, width // heads, tokens, count=heads),
            Product(tokens, 1, tokens, width // heads, count=heads),
        ),
        forward_elements=vectors + 10 * table,
        backward_elements=2 * vectors + 11 * table,
        kernels=(6, 7),
    )


def fused_attention(name: str, tokens: int, width: int, heads: int) -> Operator:
    """Attention in one kernel that never writes the table of weights (FlashAttention, Dao et al. 2022).

    Forward reads queries, keys and values and writes the result; backward reads these four and the gradient
    and writes three gradients. The product that backward computes anew is not counted, nor is what a mask
    saves.
    """
    whole = attention(name, tokens, width, heads)
    vectors = tokens * width
    return replace(whole, forward_elements=4 * vectors, backward_elements=8 * vectors, kernels=(1, 1))


def embedding(name: str, rows: int, width: int, tokens: int) -> Operator:
    """Look vectors up; the gradient is a whole table, mostly zeros, as dense gradients are."""
    return Operator(
        name,
        (rows * width,),
        forward_elements=2 * tokens * width,
        backward_elements=3 * tokens * width,
        backward_weights=rows * width,
        kernels=(1, 2),
    )


def spread_embeddings(name: str, tables: int, width: int, lookups: int, needed_by: str) -> Operator:
    """Sums of `lookups` vectors from each of some tables that are spread over the ranks.

    A rank looks up in its own tables for everybody's samples, which is as much as all tables for its own, and
    an all-to-all brings each sample's vectors to its rank. Backward updates the rows in place.
    """
    vectors = tables * width
    return Operator(
        name,
        forward_elements=vectors * (lookups + 1),
        backward_elements=vectors * (2 * lookups + 1),
        exchange=(vectors, needed_by),
    )


def lstm(name: str, inputs: int, hidden: int, steps: int, *, directions: int = 1) -> Operator:
    """A layer of LSTM cells: the products with the inputs all at once, those with the state step by step.

    The weights of the state are read anew in every step.
    """
    gates = 4 * hidden
    outer, inner = directions * gates * inputs, directions * gates * hidden
    return Operator(
        name,
        (gates * inputs, gates * hidden, gates, gates) * directions,
        products=(
            Product(steps, 1, inputs, gates, count=directions),
            Product(1, 1, hidden, gates, count=directions * steps),
        ),
        # Forward: the input, gates out of the first product and into the cell, the cell's old and new state,
        # its output. Backward: gates and their gradients, which three products read; input and gradient.
        forward_elements=directions * steps * (inputs + 2 * gates + 3 * hidden),
        backward_elements=directions * steps * (2 * inputs + 5 * gates + 4 * hidden),
        forward_weights=outer + steps * inner,
        backward_weights=2 * outer + (steps + 1) * inner,
        kernels=(1 + 2 * steps, 3 + 2 * steps),
    )
