"""Convolutional networks of DeAR's evaluation, and VGG-16: layer for layer as torchvision builds them.

Inception-v4 is that of Cadene's pretrained models, with 1000 classes, as DeAR's code has it. Pictures have
224 x 224 pixels there for all of them, Inception-v4 included, which was designed for 299.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.training.workloads.images import Picture
from weft.training.workloads.operators import pointwise

if TYPE_CHECKING:
    from weft.training.workloads.workload import Workload

_SOURCE = "torchvision; batch of DeAR's benchmarks.py"


def resnet50(image: int = 224) -> Workload:
    """ResNet-50 v1.5: strides in the 3x3 convolutions."""
    picture = Picture(image)
    _conv_norm(picture, "", "1", 64, 7, stride=2, padding=3)
    picture.activate("relu")
    picture.pool("maxpool", 3, stride=2, padding=1)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            _bottleneck(picture, f"layer{stage}.{block}.", width, stride, shortcut=block == 0)
    _head(picture, "fc")
    return picture.workload("resnet50", "ResNet-50", 64, _SOURCE)


def _bottleneck(picture: Picture, name: str, width: int, stride: int, *, shortcut: bool) -> None:
    start = picture.shape
    _conv_norm(picture, name, "1", width, 1)
    picture.activate(f"{name}relu1")
    _conv_norm(picture, name, "2", width, 3, stride=stride, padding=1)
    picture.activate(f"{name}relu2")
    _conv_norm(picture, name, "3", 4 * width, 1)
    if shortcut:
        picture.shape = start
        picture.convolve(f"{name}downsample.0", 4 * width, 1, stride=stride)
        picture.normalise(f"{name}downsample.1")
    picture.add(f"{name}add")
    picture.activate(f"{name}relu3")


def _conv_norm(
    picture: Picture, name: str, suffix: str, filters: int, kernel: int, stride: int = 1, padding: int = 0
) -> None:
    picture.convolve(f"{name}conv{suffix}", filters, kernel, stride=stride, padding=padding)
    picture.normalise(f"{name}bn{suffix}")


def _head(picture: Picture, name: str) -> None:
    picture.pool_to("avgpool", 1)
    picture.classify(name, 1000)


def densenet201(image: int = 224) -> Workload:
    """DenseNet-201: each layer reads a copy of all that its block made so far."""
    growth = 32
    picture = Picture(image)
    picture.convolve("conv0", 64, 7, stride=2, padding=3)
    picture.normalise("norm0")
    picture.activate("relu0")
    picture.pool("pool0", 3, stride=2, padding=1)
    blocks = (6, 12, 48, 32)
    for block, count in enumerate(blocks, 1):
        channels = picture.shape[2]
        for number in range(1, count + 1):
            name = f"denseblock{block}.denselayer{number}."
            picture.concatenate(f"{name}cat", channels)
            picture.normalise(f"{name}norm1")
            picture.activate(f"{name}relu1")
            picture.convolve(f"{name}conv1", 4 * growth, 1)
            picture.normalise(f"{name}norm2")
            picture.activate(f"{name}relu2")
            picture.convolve(f"{name}conv2", growth, 3, padding=1)
            channels += growth
        picture.concatenate(f"denseblock{block}.cat", channels)
        if block < len(blocks):
            picture.normalise(f"transition{block}.norm")
            picture.activate(f"transition{block}.relu")
            picture.convolve(f"transition{block}.conv", channels // 2, 1)
            picture.pool(f"transition{block}.pool", 2, stride=2)
    picture.normalise("norm5")
    picture.activate("relu5")
    _head(picture, "classifier")
    return picture.workload("densenet201", "DenseNet-201", 32, _SOURCE)


def vgg16(image: int = 224) -> Workload:
    """VGG-16 without batch normalisation: most parameters in one fully connected layer."""
    picture = Picture(image)
    number = 0
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            picture.convolve(f"features.{number}", width, 3, padding=1, bias=True)
            picture.activate(f"features.{number + 1}")
            number += 2
        picture.pool(f"features.{number}", 2, stride=2)
        number += 1
    picture.pool_to("avgpool", 7)
    for number, outputs in ((0, 4096), (3, 4096), (6, 1000)):
        picture.classify(f"classifier.{number}", outputs)
        if outputs == 4096:
            picture.activate(f"classifier.{number + 1}")
            picture.operators.append(pointwise(f"classifier.{number + 2}", picture.elements, 3, 3))
    return picture.workload("vgg16", "VGG-16", 64, "torchvision; a batch as ResNet-50's")
