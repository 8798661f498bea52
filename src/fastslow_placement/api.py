"""The Python interface: ``fastslow.place`` and ``fastslow.load_placed``. ``docs/api.md`` has examples."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastslow_placement.jax_program import JaxProgram
from fastslow_placement.place import Placed, compare, load_placed, read_function, read_problem, write_placed  # noqa: F401
from fastslow_placement.settings import ZOO, PlaceSettings
from fastslow_programs.compiler.tracing import is_staged
from fastslow_programs.program.user_program import as_typed, require_keywords, require_path


def place(
    source: str | Path | Callable,
    *arguments: Any,
    keywords: Mapping[str, Any] | None = None,
    out: str | Path = "",
    **settings: Any,
) -> Placed:
    """Place a program on several devices, and compare rules and searches by the cost model.

    Whole operators are assigned and none is split: splitting tensors is the task of Alpa and Shardy.

    Args:
        source: A function for ``jax.jit``, a ``torch.nn.Module``, ``model.py:make``, an HLO file, a
            competition npz, or ``zoo:NAME``.
        *arguments: Arguments of the function: arrays or ``jax.ShapeDtypeStruct``, of a module tensors;
            nothing is computed.
        keywords: Its keyword arguments.
        out: Folder to write to what the command writes; by default nothing is written.
        **settings: Settings of ``fastslow place``, such as ``devices=4, device="h100"``.

    Returns:
        The placement: ``table`` (the methods), ``words()``, ``gain``, ``figures()``, and ``staged()``, the
        placed function, which runs. Of a module it takes the weights and the inputs of
        :func:`fastslow_programs.program.torch_module.as_jax`.

    Raises:
        SettingsError: A setting is wrong, no placement fits into the memory, or JAX is not installed.
        DataError: The source is missing or broken, or JAX cannot trace the function.
    """
    require_keywords(keywords)
    values = as_typed(settings)
    if out:
        values["out"] = str(Path(out).expanduser().absolute())
    is_path = isinstance(source, str | Path)
    if callable(source) or (not is_path and is_staged(source)):
        place_settings = PlaceSettings(source=getattr(source, "__name__", type(source).__name__), **values)
        program = JaxProgram(source, arguments, place_settings.source, keywords)
    else:
        require_path(source, arguments, keywords)
        path = str(source) if str(source).startswith(ZOO) else str(Path(str(source)).expanduser().absolute())
        place_settings = PlaceSettings(source=path, **values)
        program = read_function(place_settings)
    if place_settings.device.endswith(".json"):
        place_settings = place_settings.from_working_folder("device")
    placed = compare(place_settings, read_problem(place_settings, program), program)
    if out:
        write_placed(placed, place_settings)
    return placed
