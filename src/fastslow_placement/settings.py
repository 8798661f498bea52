"""Settings of placing one program."""

from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge, Le

from fastslow.core.errors import DataError
from fastslow.core.files import file_digest
from fastslow.core.input_files import check_regular, unpacked_name
from fastslow.core.settings import NonNegative, NonNegativeFloat, Settings, Unread, resolve, unkeyed
from fastslow_placement.base.stored_programs import PROGRAMS
from fastslow_placement.programs.roofline import DEVICES, Device, read_device

ZOO = "zoo:"
_KINDS = "Give an HLO file, a competition npz, model.py:FUNCTION, or zoo:NAME"


class PlaceSettings(Settings):
    """Settings of placing, scheduling or fusing one program."""

    source: str = "zoo:transformer_2"
    """Program: an HLO file (any kind that ``make convert`` reads), a competition npz, ``model.py:make`` for a
    JAX function, or ``zoo:NAME`` for a stored program."""
    task: Literal["placement", "scheduling", "fusion", "joint"] = "placement"
    """Decision for each operator; scheduling keeps the placement by layers, joint decides all three."""
    devices: Annotated[int, Ge(1), Le(256)] = 4
    """Number of devices."""
    device: str = "p100"
    """Device whose roofline and links give times: p100, v100, a100, h100, v5e, tpu-v3 (a core of a pod
    slice), cpu, or a JSON file of its constants: name, flops_per_second, bytes_per_second, memory,
    launch_seconds, link_bytes_per_second, link_seconds, clock."""
    memory: NonNegativeFloat = 0.0
    """Memory limit of each device in bytes; 0 takes the device's own."""
    seed: NonNegative = 0
    """Seed of the search."""
    search: NonNegative = 60_000
    """Decisions that the search (annealing) evaluates; 0 leaves it out. Tasks other than placement have a
    twenty-fourth, as their evaluations take longer. A search of a placement simulates at most 100 million
    operators. For a program of 40,000 operators these are 2,500 evaluations, and the result tells it."""
    out: str = unkeyed("runs/placement")
    """Folder under which the result has a folder of its own."""

    def check(self) -> None:
        """Validate constraints between fields."""
        super().check()
        known = self.device in DEVICES or self.device.endswith(".json")
        self.require(known, "device", f"one of {', '.join(DEVICES)}, or a JSON file")

    def unread(self) -> Unread:
        """Return the settings that the task does not read; without a search the seed too."""
        unread: dict[str, tuple[str, str]] = {}
        if self.task == "fusion":
            why = "on a fusion, which is for one device", "choose another task"
            unread |= dict.fromkeys(("devices", "memory"), why)
        if not self.search:
            unread["seed"] = "without a search", "set search"
        return unread

    def check_typed(self) -> None:
        """Refuse a program or a device's file that is not there."""
        typed = self.typed()
        _ = typed.path
        read_device(typed.device)

    def typed(self) -> Self:
        """Return the settings that a user typed, whose relative paths start at the working folder."""
        paths = ["out"] + ["source"] * (not self.source.startswith(ZOO))
        paths += ["device"] * self.device.endswith(".json")
        return self.from_working_folder(*paths)

    @property
    def device_model(self) -> Device:
        """The constants of the device.

        Raises:
            DataError: Its file is missing or wrong.
        """
        return read_device(self.device if self.device in DEVICES else str(resolve(self.device)))

    @property
    def device_inputs(self) -> dict[str, str]:
        """Digest of the device's file, if it is one."""
        return {} if self.device in DEVICES else {"device": file_digest(resolve(self.device))}

    @property
    def path(self) -> Path | None:
        """File of the program, of a JAX function the Python file; None for one of the zoo.

        Raises:
            SettingsError: There is no such zoo program.
            DataError: The file does not exist, or is none.
        """
        if self.source.startswith(ZOO):
            known = self.source.removeprefix(ZOO) in PROGRAMS
            self.require(known, "source", f"{ZOO} followed by one of {', '.join(PROGRAMS)}")
            return None
        path = resolve(self.source.removesuffix(f":{self.function}"))
        check_regular(path)
        if not path.is_file():
            raise DataError(path, "no such file", _KINDS)
        return path

    @property
    def function(self) -> str:
        """Name of the function of ``model.py:make``; empty for any other source."""
        name, _, function = self.source.rpartition(":")
        return function if name.endswith(".py") else ""

    @property
    def name(self) -> str:
        """Name of the program."""
        source = Path(self.source.removeprefix(ZOO))
        if self.function:
            return source.name.replace(".py:", "-")
        return Path(unpacked_name(source)).stem

    @property
    def folder(self) -> str:
        """Folder of table, decision, figures and executed notebook: ``OUT/NAME-TASK-DEVICES``."""
        return f"{self.out}/{self.name}-{self.task}-{self.devices}"
