"""Batch normalisation over the batch of all ranks.

The *moments* of a batch are, per channel, its count, its mean and the sum of squared distances from the mean.
Those of all ranks are combined by the formula of Chan, Golub and LeVeque, "Algorithms for Computing the
Sample Variance", 1983, which loses no digits where the mean is great and the variance small.

The collectives have no names. They block, so ranks that ran their layers in different orders would wait for
each other under any names; without names they learn it at once, as a TensorMismatchError, where the layers
differ in width. Names would also have to be equal on all ranks, and modules have none of their own. The order
is that of the program in the forward pass; in the backward pass autograd's, which for equal graphs is the
reverse.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Sum
from horovod.torch.compiling import outside_of_graphs
from horovod.torch.operations import ops

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d``, ``2d`` and ``3d``, with mean and variance of the ranks' batches together.

    Takes input of shape (N, C, ...), of any number of dimensions from two on, on any device; N may differ
    between ranks, and be 0. All ranks of ``process_set`` must run the layer equally often, and backward too.
    Output and gradient of the input are those that ``BatchNorm`` has for the combined batch, and so are the
    running statistics, on every rank. The gradients of weight and bias are those of this rank's rows; the
    DistributedOptimizer averages them like all others. In evaluation, and in a set of one rank, it does
    nothing but ``BatchNorm``.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance.
        momentum: the share of a batch in the running statistics; None: all batches count alike.
        affine: with weight and bias.
        track_running_stats: with running statistics, which evaluation uses.
        process_set: the ranks whose batches are one.
        device: where the parameters are made.
        dtype: their type.

    Raises:
        ValueError: all batches together have one value per channel, or none.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_set = process_set

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises ``input``; in training, over all ranks."""
        self._check_input_dim(input)
        return self._normalized(input) if self.training else super().forward(input)

    @outside_of_graphs
    def _normalized(self, input: torch.Tensor) -> torch.Tensor:
        if self.process_set.size() == 1:
            return super().forward(input)
        output, mean, unbiased_variance = _Normalize.apply(
            input, self.weight, self.bias, self.eps, self.process_set
        )
        if self.track_running_stats:
            self._track(mean, unbiased_variance)
        return output

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        share = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if share is None:  # the plain average of all batches
                share = 1.0 / float(self.num_batches_tracked)
        share = 0.0 if share is None else share
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm expects at least 2 dimensions, got {input.dim()}")
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm has {self.num_features} channels, the input of shape {tuple(input.shape)} "
                f"has {input.shape[1]}"
            )
        if not input.is_floating_point():
            raise ValueError(f"SyncBatchNorm expects a floating-point input, got {input.dtype}")

    @classmethod
    def convert_sync_batchnorm(
        cls, module: nn.Module, process_set: ProcessSet = global_process_set
    ) -> nn.Module:
        """Replaces every BatchNorm layer in a module by a SyncBatchNorm with the same parameters, buffers,
        hooks and mode.

        Args:
            module: a model, or a BatchNorm layer itself.
            process_set: the ranks whose batches are one.

        Returns:
            The module to use from then on.

        Raises:
            ValueError: a lazy BatchNorm layer has no channels yet.
        """
        return cls._converted(module, process_set, {})

    @classmethod
    def _converted(
        cls, module: nn.Module, process_set: ProcessSet, known: dict[nn.Module, nn.Module]
    ) -> nn.Module:
        if module in known:  # a layer in two places stays one layer
            return known[module]
        known[module] = result = module
        if isinstance(module, _BatchNorm):
            if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
                raise ValueError("a lazy BatchNorm layer has no channels yet; convert it after a first batch")
            known[module] = result = cls.__new__(cls)
            result.__dict__.update(module.__dict__)
            result.process_set = process_set
        for name, child in list(module._modules.items()):
            if child is not None:
                result.add_module(name, cls._converted(child, process_set, known))
        return result


def convert_sync_batchnorm(module: nn.Module, process_set: ProcessSet = global_process_set) -> nn.Module:
    """Replaces every BatchNorm layer in a module by a SyncBatchNorm with the same parameters, buffers, hooks
    and mode.

    Args:
        module: a model, or a BatchNorm layer itself.
        process_set: the ranks whose batches are one.

    Returns:
        The module to use from then on.
    """
    return SyncBatchNorm.convert_sync_batchnorm(module, process_set)


class _Moments(NamedTuple):
    """Of one batch or of several together."""

    number: torch.Tensor  # of values
    mean: torch.Tensor
    squares: torch.Tensor  # the sum of squared distances from the mean


def _moments(values: torch.Tensor) -> _Moments:
    channels = values.shape[1]
    count = values.numel() // channels if channels else 0
    if count == 0:
        variance, mean = values.new_zeros(2, channels, dtype=torch.float64)
    else:
        variance, mean = torch.var_mean(values, _all_but_channels(values), correction=0)
    number = torch.tensor([float(count)], dtype=torch.float64, device=values.device)
    return _Moments(number, mean.double(), variance.double() * count)


def _combined(moments: _Moments, process_set: ProcessSet) -> _Moments:
    """Those of the batches of all ranks together; the same bits on every rank."""
    rows = ops.synchronize(ops.allgather_async(torch.cat(moments).unsqueeze(0), None, process_set))
    counts, means, squares = rows.split([1, *[moments.mean.numel()] * 2], dim=1)
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    return _Moments(count, mean, squares.sum(0) + (counts * (means - mean).square()).sum(0))


class _Normalize(torch.autograd.Function):
    """The output, and the mean and unbiased variance of all ranks' batches."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        values = _wide(input)
        count, mean, squares = _combined(_moments(values), process_set)
        if count.item() <= 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got an input of shape "
                f"{tuple(input.shape)} on this rank and none on the others"
            )
        variance = squares / count
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(input, weight, mean, scale, count)
        ctx.process_set = process_set
        ctx.bias_dtype = None if bias is None else bias.dtype
        factor = scale if weight is None else scale * weight
        output = _centred(values, mean) * _channelwise(factor, values)
        if bias is not None:
            output += _channelwise(bias, values)
        variance = squares / (count - 1)
        ctx.mark_non_differentiable(mean, variance)
        return output.to(input.dtype), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        input, weight, mean, scale, count = ctx.saved_tensors
        gradient = _wide(grad_output)
        centred = _centred(_wide(input), mean)
        dims = _all_but_channels(input)
        sums = torch.stack([gradient.sum(dims), (gradient * centred).sum(dims)]).double()
        grad_weight = (sums[1] * scale).to(weight.dtype) if ctx.needs_input_grad[1] else None
        grad_bias = sums[0].to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            total = ops.synchronize(ops.allreduce_async(sums, None, None, Sum, process_set=ctx.process_set))
            mean_gradient, slope = total[0] / count, total[1] / count * scale.square()
            grad_input = gradient - _channelwise(mean_gradient, gradient)
            grad_input -= centred * _channelwise(slope, gradient)
            grad_input *= _channelwise(scale if weight is None else scale * weight, gradient)
            grad_input = grad_input.to(input.dtype)
        return grad_input, grad_weight, grad_bias, None, None


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the type to calculate with: float32, or float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _all_but_channels(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _channelwise(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A number per channel, in a shape and type that go with those of ``like``."""
    return vector.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _centred(values: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return values - _channelwise(mean, values)
