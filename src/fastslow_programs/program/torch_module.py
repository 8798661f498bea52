"""A PyTorch module as a JAX function: torch.export makes a graph of it, and torchax calls it with JAX."""

import sys
from typing import Any

from fastslow.core.errors import SettingsError
from fastslow_programs.compiler.tracing import Call

_SHOWN = 5  # layers that a message names
_REMEDY = (
    "Replace that part of the module, such as branches and shapes that depend on values, or give a function "
    "for jax.jit"
)


def as_jax(call: Call) -> Call:
    """Return a call for ``jax.jit``; of a ``torch.nn.Module`` the call that torchax makes of it.

    A module becomes a function of its weights and its inputs, and returns a tuple. It is exported in the mode
    that it is in, training or evaluation.

    Raises:
        SettingsError: It is a module, and torchax is not installed; or torch cannot export it, or it draws
            random numbers, as dropout does in training mode. It is no module, and takes tensors of torch.
    """
    torch = sys.modules.get("torch")  # without which there is no module
    if torch is None:
        return call
    if not isinstance(call.function, torch.nn.Module):
        _require_no_tensors(call)
        return call
    try:
        import torchax
        from torchax.export import exported_program_to_jax
    except (ImportError, AttributeError):  # or one that does not suit this torch
        raise SettingsError("a PyTorch module needs torchax: pip install 'fastslow[pytorch]'") from None
    module, arguments, keywords = call.function, tuple(call.arguments), dict(call.keywords)
    name = type(module).__name__
    try:
        exported = torch.export.export(module, arguments, keywords).run_decompositions()
        _require_not_random(module, exported)
        weights, run = exported_program_to_jax(exported)
        inputs, named_inputs = torchax.default_env().t2j_copy((arguments, keywords))
        # JAX sorts the keys of a dict, the exported graph has them as they were given
        order = _leaves(inputs, named_inputs)
    except SettingsError:
        raise
    except Exception as error:  # of many kinds, for what its tracer cannot follow
        raise _unreadable(name, error) from None

    def forward(state: Any, *given: Any, **named: Any) -> Any:
        """Return the outputs."""
        leaves = _leaves(given, named)
        try:
            return run(state, [leaves[path] for path in order])
        except Exception as error:  # of many kinds, of an operation that torchax has not, or not for jax.jit
            raise _unreadable(name, error) from None

    forward.__name__ = name  # for messages
    return Call(forward, (weights, *inputs), named_inputs)


def _unreadable(name: str, error: Exception) -> SettingsError:
    """Return the error of a module of which torch or torchax can make no JAX function."""
    (reason, *_) = str(error).strip().splitlines() or [""]
    reason = f"{type(error).__name__}: {reason[:200].rstrip('. ')}"
    return SettingsError("source", f"torch.export and torchax cannot read {name} ({reason}). {_REMEDY}")


def _leaves(arguments: tuple, keywords: dict[str, Any]) -> dict[tuple, Any]:
    """Return the leaves of arguments by path, in the order in which torch reads them."""
    pairs, _ = sys.modules["torch"].utils._pytree.tree_flatten_with_path((arguments, keywords))
    return dict(pairs)


def _require_no_tensors(call: Call) -> None:
    """Raise :class:`SettingsError` if a function that is no module is given tensors of torch."""
    torch = sys.modules["torch"]
    given = (tuple(call.arguments), dict(call.keywords))
    kinds = {type(leaf) for leaf in torch.utils._pytree.tree_leaves(given)}
    if kinds.isdisjoint((torch.Tensor, torch.nn.Parameter)):  # torchax has a tensor of its own, for JAX
        return
    name = getattr(call.function, "__name__", type(call.function).__name__)
    remedy = "Give a module whose forward calls it"
    if isinstance(call.function, torch.export.ExportedProgram):
        remedy = "Give its .module()"
    raise SettingsError("source", f"{name} takes tensors of PyTorch and is no torch.nn.Module. {remedy}")


def _require_not_random(module: Any, exported: Any) -> None:
    """Raise :class:`SettingsError` that names the layers of a module that draw random numbers.

    Args:
        module: The ``torch.nn.Module``.
        exported: What ``torch.export`` made of it, decomposed: what draws nothing in this mode is gone.
    """
    seeded = sys.modules["torch"].Tag.nondeterministic_seeded
    drawing = [node for node in exported.graph.nodes if seeded in getattr(node.target, "tags", ())]
    layers = [[*node.meta["nn_module_stack"].values()][-1] for node in drawing]
    words = dict.fromkeys(f"{kind.rpartition('.')[2]} {path}".strip() for path, kind in layers)
    words |= dict.fromkeys(_dropping(module))
    if not words:
        return
    shown = ", ".join([*words][:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
    mode, remedy = "evaluation", "Give what it draws as an argument"
    if any(part.training for part in module.modules()):
        mode, remedy = "training", "Call .eval() on it"
    problem = f"{type(module).__name__} draws random numbers in {mode} mode ({shown})"
    raise SettingsError("source", f"{problem}, which torchax cannot trace. {remedy}")


def _dropping(module: Any) -> list[str]:
    """Return the recurrent layers of a module that drop values between their layers; an export loses that."""
    recurrent = sys.modules["torch"].nn.RNNBase
    return [
        f"{type(part).__name__} {path}".strip()
        for path, part in module.named_modules()
        if isinstance(part, recurrent) and part.training and part.dropout and part.num_layers > 1
    ]
