"""A network as a table of its modules."""

import pandas as pd

from fastslow.networks.model.network import RankingNetwork


def list_modules(network: RankingNetwork) -> pd.DataFrame:
    """Return the modules that hold parameters, in the order of computation.

    Args:
        network: A network.

    Returns:
        One row per module: ``module`` (its path in the network), ``type``, ``shapes`` of its parameters and
        how many ``parameters``; the last row is the sum.
    """
    rows = [
        {
            "module": path,
            "type": type(module).__name__,
            "shapes": ", ".join(str(tuple(p.shape)) for p in module.parameters(recurse=False)),
            "parameters": sum(p.numel() for p in module.parameters(recurse=False)),
        }
        for path, module in network.named_modules()
        if any(True for _ in module.parameters(recurse=False))
    ]
    total = sum(row["parameters"] for row in rows)
    return pd.DataFrame([*rows, {"module": "sum", "type": "", "shapes": "", "parameters": total}])
