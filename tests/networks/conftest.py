"""One thread: more would wait for each other on networks of this size, and sum in another order."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def quick(undrawn):
    """A training draws its curve."""
