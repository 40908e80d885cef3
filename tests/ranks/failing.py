"""A step of a model whose backward pass fails."""

import torch


class Unlucky(torch.autograd.Function):
    """Passes its input on; there is no gradient of it."""

    @staticmethod
    def forward(context, tensor):
        return tensor.clone()

    @staticmethod
    def backward(context, gradient):
        raise MemoryError("unlucky")
