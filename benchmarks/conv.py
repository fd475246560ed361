"""Suite `conv`: convolutions of ResNet-50 and MobileNet, f32, weights fixed, with bias and ReLU as after folding."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.formula import Data, Row


def convolution(o: Any, x: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    groups = x.shape[1] // weight.shape[1]
    return o.relu(o.conv2d(x, weight, bias, stride, padding, groups))


LAYERS = (
    # where, batch, channels, image, results, kernel, stride, groups
    ("ResNet stem", 1, 3, 224, 64, 7, 2, 1),
    ("ResNet 3x3", 1, 64, 56, 64, 3, 1, 1),
    ("ResNet 3x3", 1, 128, 28, 128, 3, 1, 1),
    ("ResNet 3x3", 1, 256, 14, 256, 3, 1, 1),
    ("ResNet 3x3", 1, 512, 7, 512, 3, 1, 1),
    ("ResNet 3x3 stride 2", 1, 128, 56, 128, 3, 2, 1),
    ("ResNet 3x3 stride 2", 1, 512, 14, 512, 3, 2, 1),
    ("ResNet 1x1", 1, 64, 56, 256, 1, 1, 1),
    ("ResNet 1x1", 1, 256, 56, 64, 1, 1, 1),
    ("ResNet 1x1", 1, 1024, 14, 256, 1, 1, 1),
    ("ResNet 1x1", 1, 512, 7, 2048, 1, 1, 1),
    ("ResNet 1x1 stride 2", 1, 256, 56, 512, 1, 2, 1),
    ("ResNet 3x3", 8, 64, 56, 64, 3, 1, 1),
    ("ResNet 3x3", 8, 256, 14, 256, 3, 1, 1),
    ("ResNet 1x1", 8, 256, 14, 1024, 1, 1, 1),
    ("MobileNet stem", 1, 3, 224, 32, 3, 2, 1),
    ("MobileNet depthwise", 1, 32, 112, 32, 3, 1, 32),
    ("MobileNet depthwise stride 2", 1, 96, 112, 96, 3, 2, 96),
    ("MobileNet depthwise", 1, 144, 56, 144, 3, 1, 144),
    ("MobileNet depthwise", 1, 384, 14, 384, 3, 1, 384),
    ("MobileNet depthwise", 1, 960, 7, 960, 3, 1, 960),
    ("MobileNet depthwise", 8, 144, 56, 144, 3, 1, 144),
    ("MobileNet 1x1", 1, 16, 112, 96, 1, 1, 1),
    ("MobileNet 1x1", 1, 96, 56, 24, 1, 1, 1),
    ("MobileNet 1x1", 1, 320, 7, 1280, 1, 1, 1),
    ("EfficientNet depthwise 5x5", 1, 240, 28, 240, 5, 1, 240),
    ("grouped 3x3", 1, 128, 28, 128, 3, 1, 32),
)
QUICK = ("ResNet 3x3, 1x64x56", "MobileNet depthwise, 1x144x56")


def row(
    where: str, batch: int, channels: int, image: int, results: int, kernel: int, stride: int, groups: int
) -> Row:
    name = f"{where}, {batch}x{channels}x{image} to {results}"
    return Row(
        name,
        partial(convolution, stride=stride, padding=kernel // 2),
        [Data((batch, channels, image, image))],
        [
            Data(
                (results, channels // groups, kernel, kernel), scale=(channels // groups * kernel**2) ** -0.5
            ),
            Data((results,)),
        ],
        quick=name.startswith(QUICK),
    )


CASES = [row(*layer).case() for layer in LAYERS]
