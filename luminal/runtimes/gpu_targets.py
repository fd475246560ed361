"""Which target describes a device that is there: by its name where one has that, else by its architecture."""

from __future__ import annotations

from luminal.emit_triton.targets import DEVICES, USUAL, GpuTarget
from luminal.errors import UnsupportedTargetError


def target_of_device(name: str, architecture: str) -> GpuTarget:
    """The target of a device with the name that its driver gives it ("NVIDIA H200", "AMD Instinct MI300X").

    UnsupportedTargetError for an architecture that no target describes.
    """
    plain = "".join(name.lower().replace("-", " ").split())
    found = [each for each in DEVICES if each.architecture == architecture and each.name in plain]
    if found:
        return max(found, key=lambda each: len(each.name))
    if architecture not in USUAL:
        raise UnsupportedTargetError(
            f"no target describes {name} ({architecture}); architectures that are known are {', '.join(USUAL)}"
        )
    return USUAL[architecture]


def current_target(ordinal: int) -> str:
    """The name of the target of torch's GPU of a number."""
    import torch

    from luminal.runtimes.gpu_torch import architecture_of

    return target_of_device(torch.cuda.get_device_name(ordinal), architecture_of(ordinal)).name
