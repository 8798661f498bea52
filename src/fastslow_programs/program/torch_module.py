"""A PyTorch module as a JAX function: torch.export makes a graph of it, and torchax calls it with JAX."""

import sys
from typing import Any

from fastslow.core.errors import SettingsError


def as_jax(function: Any, arguments: Any) -> tuple:
    """Return a function for ``jax.jit`` and its arguments; of a ``torch.nn.Module`` what torchax makes of it.

    A module becomes a function of its weights and its inputs, and returns a tuple. It is exported in the mode
    that it is in, training or evaluation.

    Raises:
        SettingsError: It is a module, and torchax is not installed; or torch cannot export it.
    """
    torch = sys.modules.get("torch")  # without which there is no module
    if torch is None or not isinstance(function, torch.nn.Module):
        return function, arguments
    try:
        import torchax
        from torchax.export import exported_program_to_jax
    except (ImportError, AttributeError):  # or one that does not suit this torch
        raise SettingsError("a PyTorch module needs torchax: pip install 'fastslow[pytorch]'") from None
    try:
        weights, call = exported_program_to_jax(torch.export.export(function, tuple(arguments)))
    except Exception as error:  # of many kinds, for what its tracer cannot follow
        reason = f"{type(function).__name__} ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
        raise SettingsError(f"torch.export and torchax cannot read {reason}") from None
    inputs = torchax.default_env().t2j_copy(tuple(arguments))
    return lambda state, *given: call(state, given), (weights, *inputs)
