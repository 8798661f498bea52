"""What was measured before: values of a program's configurations, for every later ranking and search of it.

A file of the folder ``measured`` belongs to the content of one program and to one evaluator: a device or a
compiler, with its version. It names a configuration by what can be imposed, the layout of the output of each
configurable node, and holds each value once, so that a study may add its values again.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastslow.competition.runtimes import are_runtimes
from fastslow.core.errors import DataError, SettingsError
from fastslow.core.files import digest, only_warned, read_json, write_json, writer_lock
from fastslow.hlo.messages import Module
from fastslow_programs.compiler.compile_pool import Labeller
from fastslow_programs.compiler.device import device_identity
from fastslow_programs.compiler.layout_choices import Configuration, TiedChoice, imposable
from fastslow_programs.compiler.layout_space import OUTPUT, ConfigurableNode, Layout, Layouts

MEASURED_FOLDER = "measured"
_REMEDY = "It is left out, and nothing is added to it; delete it, and its values are measured again"


class Measured:
    """The file of values that one evaluator (a device or a compiler) gave configurations of one program.

    Args:
        data_root: Root of the data folder, which has the files in ``measured/``.
        module: The program.
        nodes: Its configurable nodes.
        evaluator: Identity of the evaluator, in words; its first word is ``device`` or ``compiler``.
        choices: The choices that a configuration is made of; by default the imposable ones of the nodes.

    Attributes:
        path: The file, which need not be there.
    """

    def __init__(
        self,
        data_root: Path,
        module: Module,
        nodes: list[ConfigurableNode],
        evaluator: str,
        choices: list[TiedChoice] | None = None,
    ):
        self.evaluator, self._nodes = evaluator, nodes
        self._choices = choices or imposable(nodes)
        program = module_digest(module)
        kind = evaluator.partition(" ")[0]
        self._head = {"program": program, "evaluator": evaluator}
        self.path = data_root / MEASURED_FOLDER / f"{program}-{kind}-{digest(evaluator)}.json"

    def read(self) -> dict[Configuration, list[float]]:
        """Return the values by configuration; none, with a warning that names it, of a damaged file."""
        kept: dict[str, list[float]] = {}
        with only_warned():
            kept = self._read()
        configurations = {self._parse(outputs): values for outputs, values in kept.items()}
        return {codes: values for codes, values in configurations.items() if codes is not None}

    def add(self, values: Iterable[tuple[Layouts, float]]) -> None:
        """Add values of configurations; a folder that cannot be written gives a warning."""
        with only_warned(), writer_lock(self.path.parent):
            kept = self._read()
            for layouts, value in values:
                already = kept.setdefault(self._outputs(layouts), [])
                if value not in already:
                    already.append(value)
            facts = self._head | {"values": kept}
            write_json(self.path, facts | {"checksum": digest(facts)})

    def _read(self) -> dict[str, list[float]]:
        kept = read_json(self.path) if self.path.exists() else None
        facts = self._head | {"values": kept["values"] if isinstance(kept, dict) and "values" in kept else {}}
        if kept not in (None, facts | {"checksum": digest(facts)}):
            raise DataError(self.path, "is not as it was written", _REMEDY)
        values = facts["values"]
        sound = isinstance(values, dict) and all(map(_are_times, values.values()))
        if not sound:
            raise DataError(self.path, "holds values that are no lists of runtimes", _REMEDY)
        return facts["values"]

    def _outputs(self, layouts: Layouts) -> str:
        return " ".join(_digits(layouts.get(node.node, ((),))[OUTPUT]) for node in self._nodes)

    def _parse(self, outputs: str) -> Configuration | None:
        """Return a configuration, the operands as by default; None where it is none of these choices."""
        layout = dict(zip((node.node for node in self._nodes), outputs.split(), strict=False))
        options = [_option(choice, {layout.get(node) for node in choice.nodes}) for choice in self._choices]
        return None if None in options else tuple(options)


def _are_times(values: Any) -> bool:
    """Return whether what a configuration has is a list of runtimes."""
    if not isinstance(values, list) or not values:
        return False
    return all(type(value) in (int, float) for value in values) and bool(are_runtimes(values).all())


def module_digest(module: Module) -> str:
    """Return the digest of a module, by which the same program is known again."""
    return digest(module.SerializeToString(deterministic=True).hex())


def _digits(layout: Layout) -> str:
    return "".join(map(str, layout)) or "-"


def _option(choice: TiedChoice, layouts: set[str | None]) -> int | None:
    """Return the option whose output has the layout that all nodes have."""
    if OUTPUT not in choice.roles:
        return choice.default
    place = choice.roles.index(OUTPUT)
    for number, option in enumerate(choice.options):
        if {_digits(option[place])} == layouts:
            return number
    return None


def find_measured(
    data_root: Path, labeller: Labeller, module: Module, nodes: list[ConfigurableNode]
) -> tuple[dict[Configuration, list[float]], str]:
    """Return the values of a program that earlier commands kept on this machine.

    Args:
        data_root: Root of the data folder, which has the files in ``measured/``.
        labeller: The compiler whose estimates count where the device measured nothing.
        module: The program.
        nodes: Its configurable nodes.

    Returns:
        A list of values by configuration, in the unit of the evaluator, and where they are from, in words;
        an empty dict and text where nothing was kept.
    """
    program = module_digest(module)
    for kind, identity in (("device", device_identity), ("compiler", labeller.identity)):
        if any((data_root / MEASURED_FOLDER).glob(f"{program}-{kind}-*")):  # or JAX starts for nothing
            with contextlib.suppress(SettingsError):  # JAX or the compiler is not installed
                measured = Measured(data_root, module, nodes, identity())
                if values := measured.read():
                    return values, f"{measured.path}, {measured.evaluator}"
    return {}, ""
