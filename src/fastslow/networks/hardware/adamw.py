"""The optimizer of networks."""

from inspect import unwrap

import torch


class AdamW(torch.optim.AdamW):
    """Torch's own, without the wrappers that import its compiler, for two seconds, to be left alone by it."""

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
