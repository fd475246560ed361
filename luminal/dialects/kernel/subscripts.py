"""Reads flat addresses back as subscripts, for people: 384*i0 + r0 -> [i0, r0].

The axes are a guess from the strides, as of a row-major tensor; what is read is exact, for the subscripts times the
strides are the address again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from luminal.dialects.kernel.terms import Affine, Region
from luminal.dim import Dim, as_dim, known_equal, known_less, typical


@dataclass
class _Axis:
    """Places along one axis of a tensor: what is added up, each in units of the axis's stride."""

    stride: Dim
    places: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return _sum(self.places) or "0"


def subscripts(region: Region, address: Affine, dynamic: tuple[str, int] | None = None) -> str:
    """The subscripts of an address in a region; the address itself where no axes fit it.

    `dynamic`: the text of what is added to the address, and the elements that one of it stands for.
    """
    axes = _axes(region, address, dynamic)
    if axes is not None:
        _add_offset(axes, address.offset)
    # one axis whose stride is not 1: every other element, rather than a column of a matrix
    if axes is None or (len(axes) == 2 and not axes[0].places):
        scale = "" if dynamic is None or dynamic[1] == 1 else f"{dynamic[1]}*"
        moved = "" if dynamic is None else f" + {scale}({dynamic[0]})"
        return affine_text(address) + moved
    return ", ".join(str(axis) for axis in reversed(axes))


def affine_text(value: Affine) -> str:
    """`384*i0 + r0 + 1`: an affine expression for people."""
    parts = [_times(stride, name) for name, stride in value.strides]
    if value.offset.constant != 0 or not parts:
        parts.append(str(value.offset))
    return _sum(parts)


def _sum(parts: Iterable[str]) -> str:
    return " + ".join(parts).replace("+ -", "- ")


def _times(factor: Dim, name: str) -> str:
    if factor.constant == 1:
        return name
    text = str(factor)
    return f"({text})*{name}" if " " in text else f"{text}*{name}"


def _entries(region: Region, address: Affine) -> list[tuple[str, Dim, Dim]]:
    """(text, stride, size) of each index, by rising stride; the parts of a split index as one."""
    strides = dict(address.strides)
    found: list[tuple[str, Dim, Dim]] = []
    for whole in dict.fromkeys(whole for whole, _ in region.parents.values()):
        parts = {part: weight for part, (of, weight) in region.parents.items() if of == whole}
        base = next(
            (strides[part] for part, weight in parts.items() if weight == 1 and part in strides), None
        )
        if base is not None and all(strides.get(part) == base * weight for part, weight in parts.items()):
            text = " + ".join(_times(as_dim(weight), part) for part, weight in parts.items())
            found.append((text, base, region.extents[whole]))
            strides = {name: stride for name, stride in strides.items() if name not in parts}
    found += [(name, stride, region.extents[name]) for name, stride in strides.items()]
    return sorted(found, key=lambda entry: typical(entry[1]))


def _axes(region: Region, address: Affine, dynamic: tuple[str, int] | None) -> list[_Axis] | None:
    """The axes of an address, the innermost first; None where the strides are not those of a row-major tensor."""
    axes = [_Axis(as_dim(1))]
    reach = as_dim(0)
    for text, stride, size in _entries(region, address):
        if not _place(axes, text, stride, reach):
            return None
        reach = reach + stride * (size - 1)
    if dynamic is None:
        return axes
    text, step = dynamic
    for axis in axes:
        if axis.stride.constant == step:
            axis.places.append(text if not axis.places else f"({text})")
            return axes
    return axes if _place(axes, text, as_dim(step), reach) else None


def _place(axes: list[_Axis], text: str, stride: Dim, reach: Dim) -> bool:
    """Put an index on the outermost axis, or on a new one outside of all that has been reached."""
    last = axes[-1]
    if stride == last.stride:
        last.places.append(text)
        return True
    factor = stride // last.stride
    if not known_equal(factor * last.stride, stride):
        return False
    if known_less(reach, stride):
        axes.append(_Axis(stride, [text]))
        return True
    if factor.constant is None:
        return False
    last.places.append(_times(factor, text))
    return True


def _add_offset(axes: list[_Axis], offset: Dim) -> None:
    """Spread an offset over the axes; what fits no other one is left to the innermost, whose stride is 1."""
    left = offset
    for axis in reversed(axes):
        part = left // axis.stride
        is_digit = left.constant is not None and left.constant > 0 and axis.stride.constant is not None
        if part.constant == 0 or not (is_digit or known_equal(part * axis.stride, left)):
            continue
        axis.places.append(str(part))
        left = left - part * axis.stride
