"""The table of GPUs: names, and figures that must agree with each other."""

from __future__ import annotations

import pytest

from luminal.dtype import DTYPES
from luminal.emit_triton.targets import DEVICES, GpuTarget, target_named
from luminal.errors import UnsupportedTargetError


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("sm_80", "a100"),
        ("sm_89", "rtx4090"),
        ("sm_90", "h100"),
        ("h200", "h200"),
        ("H200", "h200"),
        ("sm_100", "b200"),
        ("sm_120", "rtx5090"),
        ("gfx942", "mi300x"),
        ("gfx950", "mi355x"),
    ],
)
def test_a_name_stands_for_a_device(name: str, device: str) -> None:
    assert target_named(name).name == device


def test_devices_of_an_architecture_share_its_code() -> None:
    assert target_named("h100").architecture == target_named("h200").architecture == "sm_90"
    assert target_named("h200").machine.bandwidth > target_named("h100").machine.bandwidth


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(UnsupportedTargetError, match=r"'sm_70' is not known.*h200.*sm_90.*gfx950"):
        target_named("sm_70")


@pytest.mark.parametrize("target", DEVICES, ids=lambda target: target.name)
def test_figures_agree_with_each_other(target: GpuTarget) -> None:
    machine = target.machine
    assert target.sources and target.dot <= set(DTYPES)
    assert 0 < machine.program_shared <= machine.unit_shared
    assert 0.3 < machine.matrix_part <= 1 and 0.5 < machine.memory_part < 1
    assert machine.bandwidth < machine.cache_bandwidth
    # a unit has 64 or 128 f32 lanes, each with a multiply-add a cycle; clocks of vector and matrix peaks differ a bit
    lanes = machine.vector / machine.units / machine.clock / 2
    assert lanes == pytest.approx(64, rel=0.1) or lanes == pytest.approx(128, rel=0.1)
    assert machine.matrix["bf16"] == machine.matrix["f16"] < machine.matrix["i8"]
    assert all(machine.matrix.get(name, machine.matrix.get("tf32")) for name in target.dot)


def test_fp8_is_native_from_sm_89_on_and_scaled_products_on_blackwell_and_gfx950() -> None:
    fp8 = {target.name for target in DEVICES if "f8e4m3fn" in target.dot}
    scaled = {target.name for target in DEVICES if target.dot_scaled}
    assert fp8 == {"h100", "h200", "b200", "rtx4090", "rtx5090", "mi355x"}
    assert scaled == {"b200", "rtx5090", "mi355x"}
    assert "nvfp4" not in target_named("gfx950").dot_scaled
