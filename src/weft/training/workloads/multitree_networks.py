"""The seven networks of MultiTree's evaluation, with the layers that its authors' simulator has.

They are shapes of SCALE-Sim's collection (MIT licence), oddities included, because the authors' compute times
are those of exactly these: no biases, no padding, products of attention counted as weights, AlexNet without
its fully connected layers and with a second convolution on 207 x 207 pixels (27 x 27 in the real one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from weft.training.workloads.operators import Operator, convolution
from weft.training.workloads.workload import Workload

SAMPLES: Final = 16
"""Per accelerator and iteration: one for each of its processing elements."""


def _layer(
    name: str, side: int, kernel: int, channels: int, filters: int, stride: int = 1, wide: int | None = None
) -> Operator:
    shape = (side, side if wide is None else wide, channels)
    return convolution(name, shape, filters, (kernel, kernel), stride=stride)


def _dense(name: str, inputs: int, outputs: int) -> Operator:
    return _layer(name, 1, 1, inputs, outputs)


def _alexnet() -> Iterator[Operator]:
    yield _layer("Conv1", 224, 11, 3, 96, 4)
    yield _layer("Conv2", 207, 5, 96, 256)
    yield _layer("Conv3", 13, 3, 256, 384)
    yield _layer("Conv4", 13, 3, 384, 384)
    yield _layer("Conv5", 13, 3, 384, 256)


def _alphagozero() -> Iterator[Operator]:
    yield _layer("Conv", 19, 3, 17, 256)
    yield _layer("Res_conv1", 19, 3, 256, 256)
    yield _layer("Res_conv2", 19, 3, 256, 256)
    yield _layer("ValueHead_conv", 19, 1, 256, 1)
    yield _dense("ValueHead_FC1", 361, 256)
    yield _dense("ValueHead_FC2", 256, 1)
    yield _layer("PolicyHead_conv", 19, 1, 256, 2)
    yield _dense("PolicyHead_FC", 722, 362)


def _residual(stages: int) -> Iterator[Operator]:
    """ResNet-50 up to a stage; the first block of a stage has a shortcut of its own."""
    yield _layer("Conv1", 224, 7, 3, 64, 2)
    before, channels = 56, 64
    plan = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
    for stage, (side, width, blocks) in enumerate(plan[:stages], 2):
        for block in range(blocks):
            name = f"{'IB' if block else 'CB'}{stage}"
            stride = before // side
            yield _layer(f"{name}{'abcdef'[block]}_1", before, 1, channels, width, stride)
            yield _layer(f"{name}{'abcdef'[block]}_2", side, 3, width, width)
            yield _layer(f"{name}{'abcdef'[block]}_3", side, 1, width, 4 * width)
            if not block:
                yield _layer(f"{name}s", before, 1, channels, 4 * width, stride)
            before, channels = side, 4 * width


def _resnet50() -> Iterator[Operator]:
    yield from _residual(4)
    yield _dense("FC6", 2048, 1000)


def _fasterrcnn() -> Iterator[Operator]:
    yield from _residual(3)
    yield _layer("RPN_Conv1", 14, 3, 1024, 512)
    yield _layer("RPN_Conv_bbox", 14, 1, 512, 36)
    yield _layer("RPN_Conv_cls", 14, 1, 512, 18)


_INCEPTION: Final = {
    # name: side, channels; filters of 1x1, 3x3 behind its reduction, 5x5 behind its reduction, pooling
    "3a": (28, 192, (64, 96, 128, 16, 32, 32)),
    "3b": (28, 256, (128, 128, 192, 32, 96, 64)),
    "4a": (14, 480, (192, 96, 208, 16, 48, 64)),
    "4b": (14, 512, (160, 112, 224, 24, 64, 64)),
    "4c": (14, 512, (128, 128, 256, 24, 64, 64)),
    "4d": (14, 512, (112, 144, 288, 32, 64, 64)),
    "4e": (14, 528, (256, 160, 320, 32, 128, 128)),
    "5a": (7, 832, (256, 160, 320, 32, 128, 128)),
    "5b": (7, 832, (384, 192, 384, 48, 128, 128)),
}


def _googlenet() -> Iterator[Operator]:
    yield _layer("Conv1", 224, 7, 3, 64, 2)
    yield _layer("Conv2red", 56, 1, 64, 64)
    yield _layer("Conv2", 56, 3, 64, 192)
    # Where the collection differs from the network.
    odd = {"Inc4c_5x5": (1, 24), "Inc5a_3x3red": (1, 532), "Inc5b_5x5": (5, 32)}
    for block, (side, channels, (one, red3, three, red5, five, pool)) in _INCEPTION.items():
        rows = (
            ("1x1", 1, channels, one),
            ("3x3red", 1, channels, red3),
            ("3x3", 3, red3, three),
            ("5x5red", 1, channels, red5),
            ("5x5", 5, red5, five),
            ("pp", 1, channels, pool),
        )
        for part, kernel, inputs, filters in rows:
            name = f"Inc{block}_{part}"
            kernel, inputs = odd.get(name, (kernel, inputs))
            yield _layer(name, side, kernel, inputs, filters)
    yield _dense("FC6", 1024, 1000)


def _ncf() -> Iterator[Operator]:
    for part, width in (("MF", 8), ("MLP", 32)):
        for what in ("user", "item"):
            yield _dense(f"{part}_Embedding_{what}", 138_000, width)
    for number, (inputs, outputs) in enumerate(((64, 32), (32, 16), (16, 8)), 1):
        yield _dense(f"MLP_FC{number}", inputs, outputs)
    yield _dense("Predict_FC", 16, 1)


def _transformer() -> Iterator[Operator]:
    """Six layers of an encoder with 8 heads each, six of a decoder with 16, heads as layers of their own."""
    for half, heads in (("Encoder", 8), ("Decoder", 16)):
        yield _layer(f"{half}_Embedding", 512, 1, 1, 33_708, wide=1)
        for layer in range(6):
            for head in range(heads):
                name = f"{half}{layer}_Attn{head}"
                for part in ("X", "K", "Q"):
                    yield _dense(f"{name}_{part}map", 512, 64)
                yield _layer(f"{name}_QxK", 1, 1, 1, 64, wide=64)
                yield _layer(f"{name}_SFMxV", 1, 1, 64, 1, wide=64)
                yield _dense(f"{name}_Concat_map", 512, 512)
            yield _dense(f"{half}{layer}_FFN1", 512, 2048)
            yield _dense(f"{half}{layer}_FFN2", 2048, 512)
    yield _dense("Concat_map", 512, 512)


_NETWORKS: Final[dict[str, Callable[[], Iterator[Operator]]]] = {
    "AlexNet": _alexnet,
    "AlphaGoZero": _alphagozero,
    "FasterRCNN": _fasterrcnn,
    "GoogLeNet": _googlenet,
    "NCF": _ncf,
    "ResNet50": _resnet50,
    "Transformer": _transformer,
}


def _define(title: str, network: Callable[[], Iterator[Operator]]) -> Callable[[], Workload]:
    def workload() -> Workload:
        name = f"multitree-{title.lower()}"
        source = "SCALE-Sim's shapes as MultiTree's authors used them; one sample per processing element"
        return Workload(name, f"{title} of MultiTree's evaluation", tuple(network()), SAMPLES, source)

    workload.__doc__ = f"{title} as MultiTree's authors simulated it."
    return workload


NETWORKS: Final = {
    f"multitree-{title.lower()}": _define(title, network) for title, network in _NETWORKS.items()
}
"""Name and definition of each."""
