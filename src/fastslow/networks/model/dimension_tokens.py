"""A token for each dimension of a node's tensor, and a small transformer over them (5th place, knshnb)."""

import numpy as np
import torch
from torch import Tensor, nn

from fastslow.competition import node_columns
from fastslow.competition.layouts import LAYOUT_WIDTH, ROLES
from fastslow.competition.node_columns import LISTS
from fastslow.features.scaling import TILES

AXES = np.arange(LAYOUT_WIDTH)
HEADS = 2
_LISTS = (*LISTS["shape"], *LISTS["dimensions"], *LISTS["window"])
_FIRST = [*(part.start for part in _LISTS), TILES.start, TILES.start + LAYOUT_WIDTH]
_COLUMNS = np.array(_FIRST)[None, :] + AXES[:, None]  # (6, 11) of the expanded node features
_NAMED = np.array(node_columns.CONVOLUTION_AXES).ravel()
TOKEN_FEATURES = _COLUMNS.shape[1] + len(_NAMED)
"""Features of a dimension that no configuration changes."""
TOKEN_COLUMNS = LAYOUT_WIDTH * TOKEN_FEATURES


def dimension_features(scaled: np.ndarray, kept: np.ndarray, node_feat: np.ndarray) -> np.ndarray:
    """Return the features of the six dimensions of each node.

    Args:
        scaled: ``(N, kept)`` scaled columns that the network reads.
        kept: ``(kept,)`` their positions among the expanded node features; 0 stands for a column that it does
            not read.
        node_feat: ``(N, 140)`` as stored.

    Returns:
        ``(N, 6 * TOKEN_FEATURES)`` float32, dimension by dimension: size, mod and div 128, entry of
        ``dimensions``, six of the window, and whether it is the batch or feature axis of a convolution's
        output, input or kernel.
    """
    every = np.zeros((len(scaled), int(_COLUMNS.max()) + 1), np.float32)
    inside = kept < every.shape[1]
    every[:, kept[inside]] = scaled[:, inside]
    named = node_feat[:, None, _NAMED] == AXES[:, None]
    return np.concatenate([every[:, _COLUMNS], named], 2, dtype=np.float32).reshape(len(scaled), -1)


class DimensionTokens(nn.Module):
    """Embed a state by its dimensions: six tokens, two transformer layers, their mean.

    A token has the features of the dimension and its place in the minor-to-major order of the node's own
    layout and of its configured ones: layouts inverted, so that what concerns a dimension is together. The
    order of the dimensions themselves is not given. On the real data the 5th place found it clearly better
    than flat features for tile, equal for layout. Its transformer is 256 wide, here as wide as the network.

    Deduplication costs nothing: only states of level 0 are embedded, and of equal ones a single one.

    Args:
        channels: Channels D, even.

    Shapes:
        - **input:** features :math:`(N, 6 T)`, layouts :math:`(N, 6)` and :math:`(S_0, 18)`, shifted by 2
        - **output:** :math:`(S_0, D)`
    """

    def __init__(self, channels: int):
        super().__init__()
        places = LAYOUT_WIDTH * (1 + len(ROLES))
        self.embed = nn.Linear(TOKEN_FEATURES + places, channels)
        layer = nn.TransformerEncoderLayer(
            channels, HEADS, 2 * channels, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)

    def forward(
        self, dimensions: Tensor, node_layout: Tensor, state_layouts: Tensor, node_ids: Tensor
    ) -> Tensor:
        """Return the embedding of each state."""
        rows = torch.cat([dimensions[node_ids], node_layout[node_ids], state_layouts], 1)
        rows, index = torch.unique(rows, dim=0, return_inverse=True)
        features, layouts = rows.split([TOKEN_COLUMNS, rows.shape[1] - TOKEN_COLUMNS], 1)
        axes = torch.arange(LAYOUT_WIDTH, device=rows.device)
        places = (layouts[:, None, :] - 2) == axes[:, None]  # (rows, dimension, place of each layout)
        tokens = torch.cat([features.unflatten(1, (LAYOUT_WIDTH, -1)), places.to(features)], 2)
        return self.encoder(self.embed(tokens)).mean(1)[index]
