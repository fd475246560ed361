"""Objects for 64-bit Arm, run in an emulated processor that sees this process's memory where it lies.

Sections are laid out in memory of the emulator's own and relocated; a page of this process is mapped when the code
first asks for it, so that pointers mean the same on both sides.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import io
import struct

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from unicorn import (
    UC_ARCH_ARM64,
    UC_HOOK_CODE,
    UC_HOOK_MEM_UNMAPPED,
    UC_MODE_ARM,
    UC_PROT_ALL,
    Uc,
    UcError,
    arm64_const,
)

from luminal.emit_cpu.jit import Target

ARM = Target("aarch64-unknown-linux-gnu", "generic", "+neon,+fullfp16,+dotprod", 128, 32)
"""What the emulator has: NEON, half precision, dot products of bytes."""

CODE, CODE_BYTES = 0x1000_0000, 1 << 24
STACK, STACK_BYTES = 0x2000_0000, 1 << 22
OUTSIDE, OUTSIDE_BYTES = CODE + CODE_BYTES, 1 << 16
RETURN = OUTSIDE + OUTSIDE_BYTES - 16
PAGE = 1 << 16
RETURN_INSTRUCTION = 0xD65F03C0

_PAGE_OFFSET_SCALE = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
"""R_AARCH64_ADD_ABS_LO12_NC and the LDST ones by the scale of their immediate."""
_PAGE_OF, _CALLS, _ABSOLUTE, _RELATIVE = (275, 276), (282, 283), 257, 261

_X = [getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(8)]
_D = [getattr(arm64_const, f"UC_ARM64_REG_D{number}") for number in range(8)]
BLOCKS = {"memset": ctypes.memset, "memcpy": ctypes.memmove, "memmove": ctypes.memmove}
FUNCTIONS = {"sin": (1, False), "cos": (1, False), "fmod": (2, False), "fmodf": (2, True)}
"""Of C's library: how many operands, and whether they are of single precision."""

_libm = ctypes.CDLL(ctypes.util.find_library("m"))


class ArmError(Exception):
    """The emulated processor stopped before the function returned, or an object needs what it lacks."""


class ArmLibrary:
    """An object as `luminal.emit_cpu.jit.Library` is one: the addresses of its functions, to be called here."""

    def __init__(self, image: bytes) -> None:
        self.machine = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
        self.machine.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
        for start, size in ((CODE, CODE_BYTES), (STACK, STACK_BYTES), (OUTSIDE, OUTSIDE_BYTES)):
            self.machine.mem_map(start, size, UC_PROT_ALL)
        self.machine.mem_write(OUTSIDE, struct.pack("<I", RETURN_INSTRUCTION) * (OUTSIDE_BYTES // 4))
        enable = self.machine.reg_read(arm64_const.UC_ARM64_REG_CPACR_EL1) | 3 << 20
        self.machine.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, enable)
        self.machine.hook_add(UC_HOOK_MEM_UNMAPPED, self._map)
        self.machine.hook_add(UC_HOOK_CODE, self._outside, begin=OUTSIDE, end=RETURN - 4)
        self.outside: list[str] = []
        self.addresses = self._link(ELFFile(io.BytesIO(image)))

    def __getitem__(self, name: str) -> int:
        return self.addresses[name]

    def call(self, name: str, *arguments: int) -> int:
        """Call a function with pointers and integers; what it leaves in w0, with its sign."""
        machine = self.machine
        for register, argument in zip(_X, arguments, strict=False):
            machine.reg_write(register, argument)
        machine.reg_write(arm64_const.UC_ARM64_REG_SP, STACK + STACK_BYTES - 64)
        machine.reg_write(arm64_const.UC_ARM64_REG_LR, RETURN)
        try:
            machine.emu_start(self.addresses[name], RETURN)
        except UcError as error:
            place = machine.reg_read(arm64_const.UC_ARM64_REG_PC)
            code = bytes(machine.mem_read(place, 4)).hex() if CODE <= place < CODE + CODE_BYTES else "outside"
            raise ArmError(f"{error} at {place - CODE:#x} of {name}, instruction {code}") from None
        return ctypes.c_int32(machine.reg_read(_X[0]) & 0xFFFFFFFF).value

    def _map(self, machine: Uc, access: int, address: int, size: int, value: int, data: object) -> bool:
        """Show a page of this process; none of the first, where a null pointer would lie."""
        if address < 1 << 32:
            return False
        for start in {address // PAGE * PAGE, (address + size - 1) // PAGE * PAGE}:
            if not any(begin <= start <= end for begin, end, _ in machine.mem_regions()):
                machine.mem_map_ptr(start, PAGE, UC_PROT_ALL, start)
        return True

    def _outside(self, machine: Uc, address: int, size: int, data: object) -> None:
        """Run a function of the C library in this process."""
        name = self.outside[(address - OUTSIDE) // 16]
        if name in BLOCKS:
            BLOCKS[name](*self._real(machine))
            return
        if name not in FUNCTIONS:
            raise ArmError(f"a call of {name}")
        count, single = FUNCTIONS[name]
        kind, code, bits = (ctypes.c_float, "f", "I") if single else (ctypes.c_double, "d", "Q")
        function = _libm[name]
        function.restype, function.argtypes = kind, [kind] * count
        size = struct.calcsize(code)
        given = [struct.pack("<Q", machine.reg_read(register))[:size] for register in _D[:count]]
        result = struct.pack(code, function(*(struct.unpack(code, each)[0] for each in given)))
        machine.reg_write(_D[0], struct.unpack(bits, result)[0])

    def _real(self, machine: Uc) -> list[int]:
        given = [machine.reg_read(register) for register in _X[:3]]
        if any(STACK <= pointer < STACK + STACK_BYTES for pointer in given[:2]):
            raise ArmError("a block of the emulator's own stack is filled or copied")
        return given

    def _link(self, image: ELFFile) -> dict[str, int]:
        starts: dict[int, int] = {}
        place = CODE
        for number, section in enumerate(image.iter_sections()):
            if section["sh_flags"] & 2 and section["sh_size"]:
                place = -(-place // section["sh_addralign"]) * section["sh_addralign"]
                starts[number] = place
                if section["sh_type"] != "SHT_NOBITS":
                    self.machine.mem_write(place, section.data())
                place += section["sh_size"]
        symbols = list(image.get_section_by_name(".symtab").iter_symbols())
        addresses: list[int] = []
        for symbol in symbols:
            home = symbol["st_shndx"]
            if home == "SHN_UNDEF" and symbol.name:
                addresses.append(OUTSIDE + 16 * len(self.outside))
                self.outside.append(symbol.name)
            else:
                addresses.append(starts.get(home, 0) + symbol["st_value"] if isinstance(home, int) else 0)
        for section in image.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_info"] in starts:
                for entry in section.iter_relocations():
                    target = addresses[entry["r_info_sym"]] + entry["r_addend"]
                    self._relocate(
                        entry["r_info_type"], starts[section["sh_info"]] + entry["r_offset"], target
                    )
        return {
            symbol.name: address for symbol, address in zip(symbols, addresses, strict=True) if symbol.name
        }

    def _relocate(self, kind: int, place: int, target: int) -> None:
        if kind == _ABSOLUTE:
            self.machine.mem_write(place, struct.pack("<Q", target))
            return
        (word,) = struct.unpack("<I", self.machine.mem_read(place, 4))
        if kind in _PAGE_OF:
            pages = (target >> 12) - (place >> 12)
            word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        elif kind in _PAGE_OFFSET_SCALE:
            word |= (target & 0xFFF) >> _PAGE_OFFSET_SCALE[kind] << 10
        elif kind in _CALLS:
            word |= (target - place) >> 2 & 0x3FFFFFF
        elif kind == _RELATIVE:
            word = target - place & 0xFFFFFFFF
        else:
            raise ArmError(f"relocation {kind}")
        self.machine.mem_write(place, struct.pack("<I", word))
