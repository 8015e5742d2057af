"""Inception-v4 (Szegedy et al. 2016), see `vision`: blocks of branches, branches of convolutions in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.training.workloads.images import Picture

if TYPE_CHECKING:
    from weft.training.workloads.workload import Workload

_Kernel = int | tuple[int, int]
_Branch = tuple[tuple[int, _Kernel], ...]
"""Filters and kernel of each convolution, one after the other."""

_TALL: Final = (7, 1)
_WIDE: Final = (1, 7)

_BLOCK_A: Final[tuple[_Branch, ...]] = (
    ((96, 1),),
    ((64, 1), (96, 3)),
    ((64, 1), (96, 3), (96, 3)),
    ((96, 1),),
)
_BLOCK_B: Final[tuple[_Branch, ...]] = (
    ((384, 1),),
    ((192, 1), (224, _WIDE), (256, _TALL)),
    ((192, 1), (192, _TALL), (224, _WIDE), (224, _TALL), (256, _WIDE)),
    ((128, 1),),
)
_REDUCTION_A: Final[tuple[_Branch, ...]] = (((384, 3),), ((192, 1), (224, 3), (256, 3)))
_REDUCTION_B: Final[tuple[_Branch, ...]] = (
    ((192, 1), (192, 3)),
    ((256, 1), (256, _WIDE), (320, _TALL), (320, 3)),
)


def inception_v4(image: int = 224) -> Workload:
    """Inception-v4: 149 convolutions without bias, each with batch normalisation."""
    picture = Picture(image)
    _stem(picture)
    for number in range(6, 10):
        _block(picture, f"features.{number}", _BLOCK_A)
    _reduce(picture, "features.10", _REDUCTION_A)
    for number in range(11, 18):
        _block(picture, f"features.{number}", _BLOCK_B)
    _reduce(picture, "features.18", _REDUCTION_B)
    for number in range(19, 22):
        _block_c(picture, f"features.{number}")
    picture.pool_to("avg_pool", 1)
    picture.classify("last_linear", 1000)
    source = "Cadene's pretrained models, 1000 classes; batch and pictures of DeAR's benchmarks.py"
    return picture.workload("inception-v4", "Inception-v4", 64, source)


def _conv(
    picture: Picture, name: str, filters: int, kernel: _Kernel, *, stride: int = 1, padded: bool = True
) -> None:
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = ((high - 1) // 2, (wide - 1) // 2) if padded else (0, 0)
    picture.convolve(f"{name}.conv", filters, kernel, stride=stride, padding=padding)
    picture.normalise(f"{name}.bn")
    picture.activate(f"{name}.relu")


def _row(picture: Picture, name: str, branch: _Branch) -> None:
    """Convolutions one after the other, numbered behind their name."""
    for number, (filters, kernel) in enumerate(branch):
        _conv(picture, f"{name}{number}", filters, kernel)


def _stem(picture: Picture) -> None:
    _conv(picture, "features.0", 32, 3, stride=2, padded=False)
    _conv(picture, "features.1", 32, 3, padded=False)
    _conv(picture, "features.2", 64, 3)
    start = picture.shape
    picture.pool("features.3.maxpool", 3, stride=2)
    picture.shape = start
    _conv(picture, "features.3.conv", 96, 3, stride=2, padded=False)
    picture.concatenate("features.3.cat", 160)
    start = picture.shape
    _conv(picture, "features.4.branch0.0", 64, 1)
    _conv(picture, "features.4.branch0.1", 96, 3, padded=False)
    picture.shape = start
    _row(picture, "features.4.branch1.", ((64, 1), (64, _WIDE), (64, _TALL)))
    _conv(picture, "features.4.branch1.3", 96, 3, padded=False)
    picture.concatenate("features.4.cat", 192)
    start = picture.shape
    _conv(picture, "features.5.conv", 192, 3, stride=2, padded=False)
    after = picture.shape
    picture.shape = start
    picture.pool("features.5.maxpool", 3, stride=2)
    picture.shape = after
    picture.concatenate("features.5.cat", 384)


def _block(picture: Picture, name: str, branches: tuple[_Branch, ...]) -> None:
    """Branches side by side; the last begins with a mean over 3x3 windows."""
    start = picture.shape
    for index, branch in enumerate(branches):
        picture.shape = start
        if index == len(branches) - 1:
            picture.pool(f"{name}.branch{index}.pool", 3, padding=1)
        _row(picture, f"{name}.branch{index}.", branch)
    picture.concatenate(f"{name}.cat", sum(branch[-1][0] for branch in branches))


def _reduce(picture: Picture, name: str, branches: tuple[_Branch, ...]) -> None:
    """Branches that end with a stride of 2, beside a maximum."""
    start = picture.shape
    picture.pool(f"{name}.maxpool", 3, stride=2)
    for index, branch in enumerate(branches):
        picture.shape = start
        _row(picture, f"{name}.branch{index}.", branch[:-1])
        filters, kernel = branch[-1]
        _conv(picture, f"{name}.branch{index}.{len(branch) - 1}", filters, kernel, stride=2, padded=False)
    picture.concatenate(f"{name}.cat", start[2] + sum(branch[-1][0] for branch in branches))


def _block_c(picture: Picture, name: str) -> None:
    """Two branches of this block part again at their end."""
    start = picture.shape
    _conv(picture, f"{name}.branch0", 256, 1)
    rows: tuple[_Branch, _Branch] = (((384, 1),), ((384, 1), (448, (3, 1)), (512, (1, 3))))
    for index, row in enumerate(rows, 1):
        picture.shape = start
        _row(picture, f"{name}.branch{index}_", row)
        fork = picture.shape
        _conv(picture, f"{name}.branch{index}_{len(row)}a", 256, (1, 3))
        picture.shape = fork
        _conv(picture, f"{name}.branch{index}_{len(row)}b", 256, (3, 1))
    picture.shape = start
    picture.pool(f"{name}.branch3.pool", 3, padding=1)
    _conv(picture, f"{name}.branch3.1", 256, 1)
    picture.concatenate(f"{name}.cat", 6 * 256)
