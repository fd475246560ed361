"""Resources are read from what compilers say, without one; and kernels that a target cannot run well are refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from luminal.emit_triton.resources import (
    Resources,
    count_instructions,
    occupancy,
    read_resources,
    refusal,
    with_resources,
)
from luminal.emit_triton.targets import GpuTarget, target_named
from luminal.search.gpu_roofline import Launch, estimate

H100, B200, MI300X = target_named("h100"), target_named("b200"), target_named("mi300x")
GOOD = Resources(
    registers=116, spills=0, stack=0, shared=49152, tensor_memory=0, warps=8, instructions={"wgmma": 4}
)
PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'product' for 'sm_90a'
ptxas info    : Function properties for product
    16 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size
"""
AMDGCN = """
    v_mfma_f32_32x32x8_f16 v[0:15], v[40:41], v[42:43], v[0:15]
    v_smfmac_f32_32x32x16_f16 v[0:15], v[40:41], v[42:45], v46
    buffer_load_dwordx4 v30, s[8:11], 0 offen lds
    buffer_load_dwordx4 v[30:33], v34, s[8:11], 0 offen
    s_barrier
    global_atomic_add_f32 v0, v1, s[2:3]
    .private_segment_fixed_size: 48
    .vgpr_count:     112
    .vgpr_spill_count: 12
"""


def test_what_ptxas_says() -> None:
    found = read_resources("cuda", "", PTXAS, {"shared": 1024, "num_warps": 4, "tmem_size": 128})
    assert found == Resources(255, 48, 16, 1024, 128, 4, {})


def test_what_amd_assembly_says() -> None:
    found = read_resources("hip", AMDGCN, "", {"shared": 1024, "num_warps": 4})
    assert found == Resources(112, 48, 48, 1024, 0, 4, {"mfma": 2, "lds load": 1, "atomic": 1, "barrier": 1})


def test_a_compiler_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="how many registers"):
        read_resources("cuda", "", "ptxas info : nothing", {"num_warps": 4})


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, 1;", "wgmma"),
        ("@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2;", "tcgen05"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1};", "mma.sync"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 0x10, %r2;", "cp.async"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1];", "tma"),
        ("red.global.add.f32 [%rd1], %f1;", "atomic"),
        ("atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], 1;", "atomic"),
        ("bar.sync 0;", "barrier"),
        ("barrier.cta.sync 1, 128;", "barrier"),
        ("cp.async.commit_group;", ""),
        ("wgmma.fence.sync.aligned;", ""),
    ],
)
def test_an_instruction_of_ptx_is_of_one_kind(line: str, kind: str) -> None:
    assert count_instructions(f"\t{line}\n", "cuda") == ({kind: 1} if kind else {})


@pytest.mark.parametrize(
    ("resources", "target", "reason"),
    [
        (replace(GOOD, spills=64), H100, "spills 64 bytes"),
        (replace(GOOD, shared=393_216), H100, "393216 bytes of shared memory, h100 has 232448"),
        (replace(GOOD, shared=65_537), MI300X, "65537 bytes of shared memory, mi300x has 65536"),
        (replace(GOOD, registers=255, warps=16), H100, "16 warps with 255 registers .* do not fit"),
        (replace(GOOD, warps=64), MI300X, "64 warps"),
        (replace(GOOD, tensor_memory=1024), B200, "1024 columns of tensor memory, b200 has 512"),
    ],
)
def test_a_kernel_that_a_target_cannot_run_well_is_refused(
    resources: Resources, target: GpuTarget, reason: str
) -> None:
    assert refusal(GOOD, target) is None
    said = refusal(resources, target)
    assert said is not None and re.search(reason, said)


def test_a_compiled_kernel_completes_the_price_of_its_launch() -> None:
    launch = Launch(programs=1000, memory_bytes=1e8, matrix_flops=1e12)
    found = with_resources(launch, GOOD, H100)
    assert found == replace(launch, resident=2, is_asynchronous=True)
    plain = with_resources(launch, replace(GOOD, instructions={"mma.sync": 4}), H100)
    assert estimate(plain, H100.machine).seconds > estimate(found, H100.machine).seconds


def test_programs_share_a_multiprocessor_as_far_as_the_scarcest_goes() -> None:
    assert occupancy(GOOD, H100) == 2
    assert occupancy(replace(GOOD, registers=32, shared=0), H100) == 8
    assert occupancy(replace(GOOD, shared=0, registers=32, tensor_memory=256), B200) == 2
