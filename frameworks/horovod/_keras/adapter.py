"""The optimizers, callbacks and operations on values of ``horovod.keras`` and ``horovod.tensorflow.keras``,
built by one class from a Keras and the backend by which it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from horovod._keras import callbacks, elastic, rate_callbacks
from horovod._keras.backend import Backend, make_plan
from horovod._keras.loading import load_model
from horovod.common.collective import byte_objects
from horovod.common.collective.compression import Compressor, NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.gradient_options import GradientSettings, Groups


class KerasAdapter:
    """The public functions and classes for one Keras; ``horovod.keras`` and ``horovod.tensorflow.keras`` each
    have one instance, and offer its methods as their functions.

    Args:
        keras: The package: keras, or tf_keras.
        backend: The framework by which it computes.
        package: The name of the package of horovod that offers all this.
    """

    def __init__(self, keras: Any, backend: Backend, package: str) -> None:
        self._keras = keras
        self._backend = backend
        self._callbacks_module = f"{package}.callbacks"
        base = keras.callbacks.Callback
        of_elastic = f"{package}.elastic"
        self.CommitStateCallback = self._callback(elastic.CommitState, base, module=of_elastic)
        self.UpdateBatchStateCallback = self._callback(elastic.UpdateBatchState, base, module=of_elastic)
        self.UpdateEpochStateCallback = self._callback(elastic.UpdateEpochState, base, module=of_elastic)
        self.LearningRateScaleCallback = self._callback(elastic.LearningRateScale, base, module=of_elastic)
        self.BroadcastGlobalVariablesCallback = self._callback(callbacks.BroadcastGlobalVariables, base)
        self.MetricAverageCallback = self._callback(callbacks.MetricAverage, base)
        self.ProgressCallback = self._callback(callbacks.Progress, base)
        self.LearningRateScheduleCallback = self._callback(rate_callbacks.LearningRateSchedule, base)
        self.LearningRateWarmupCallback = self._callback(rate_callbacks.LearningRateWarmup, base)
        checkpoint = keras.callbacks.ModelCheckpoint
        self.BestModelCheckpoint = self._callback(callbacks.BestModel, checkpoint, "BestModelCheckpoint")

    def _callback(self, part: type, base: type, name: str | None = None, module: str | None = None) -> Any:
        """A class of callbacks of this Keras whose methods come from ``part`` first."""
        named = {"__module__": module or self._callbacks_module, "__doc__": part.__doc__}
        return type(name or f"{part.__name__}Callback", (part, base), {**named, "_backend": self._backend})

    def distributed(
        self, optimizer: Any, settings: GradientSettings, name: str | None = None, local_layers: Any = None
    ) -> Any:
        """A distributed copy of ``optimizer``. ``name``, ``local_layers``: see the public functions."""
        plan = make_plan(self._backend, optimizer, settings, name, local_layers)
        return self._backend.distribute(optimizer, plan)

    def DistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: type[Compressor] | None = NoneCompressor,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Groups = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> Any:
        """Makes an optimizer of Keras one that reduces gradients over all ranks before it does anything else.

        Give the result to ``compile``. A model that is saved with it can be loaded without this library, by
        ``keras.models.load_model``, then with the plain optimizer; ``hvd.load_model`` makes it distributed
        again.

        Args:
            optimizer: Of Keras 3 or Keras 2, also a LossScaleOptimizer.
            name: Begins the names of the operations.
            device_dense: Where TensorFlow places the operations for dense gradients.
            device_sparse: Where TensorFlow places those for sparse gradients.
            compression: How gradients travel.
            sparse_as_dense: Makes sparse gradients dense first.
            gradient_predivide_factor: Gradients are divided by it before they are added up, and by size /
                factor afterwards; only with ``op=hvd.Average``.
            op: The reduction.
            backward_passes_per_step: How many gradients are added up locally before they travel and are
                applied.
            average_aggregated_gradients: Divides these sums by ``backward_passes_per_step``.
            num_groups: The deprecated form of ``groups``.
            groups: A number of groups, or lists of variables, whose gradients travel as one operation each.
            process_set: The ranks that train together; on every other rank the optimizer does what
                ``optimizer`` would.
            scale_local_gradients: Divides the gradients of variables that were given to
                ``register_local_var``, which are not reduced, by the number of ranks.

        Returns:
            A new optimizer of the same class name, with the configuration and the state of ``optimizer``.

        Raises:
            ValueError: For what is no optimizer of Keras, and for options that exclude each other.
        """
        settings = GradientSettings.among(locals())
        return self.distributed(optimizer, settings, name)

    def PartialDistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: type[Compressor] | None = NoneCompressor,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        groups: Groups = None,
        process_set: ProcessSet = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
    ) -> Any:
        """As ``DistributedOptimizer``, but the gradients of some layers stay on their rank.

        Args:
            optimizer: Of Keras 3 or Keras 2, also a LossScaleOptimizer.
            name: Begins the names of the operations.
            device_dense: Where TensorFlow places the operations for dense gradients.
            device_sparse: Where TensorFlow places those for sparse gradients.
            compression: How gradients travel.
            sparse_as_dense: Makes sparse gradients dense first.
            gradient_predivide_factor: As for ``DistributedOptimizer``.
            op: The reduction.
            backward_passes_per_step: How many gradients are added up locally before they travel and are
                applied.
            average_aggregated_gradients: Divides these sums by ``backward_passes_per_step``.
            groups: A number of groups, or lists of variables, whose gradients travel as one operation each.
            process_set: The ranks that train together; on every other rank the optimizer does what
                ``optimizer`` would.
            local_layers: One layer or several, whose gradients are not reduced.
            scale_local_gradients: Divides these gradients by the number of ranks, and so those of variables
                that were given to ``register_local_var``.

        Returns:
            A new optimizer of the same class name, with the configuration and the state of ``optimizer``.

        Raises:
            ValueError: As for ``DistributedOptimizer``, and for what is no layer.
        """
        settings = GradientSettings.among(locals())
        return self.distributed(optimizer, settings, name, local_layers)

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Iterable[type] | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        compression: type[Compressor] | None = NoneCompressor,
        legacy_opts: bool = False,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
    ) -> Any:
        """Loads a model that ``model.save`` has saved, with its optimizer as a DistributedOptimizer that goes
        on where the saved one stopped.

        Args:
            filepath: The file.
            custom_optimizers: Classes of optimizers that Keras does not know.
            custom_objects: Whatever else it does not know, by name.
            compression: How gradients travel.
            legacy_opts: Whether the optimizer is one of ``keras.optimizers.legacy``.
            backward_passes_per_step: As for the optimizer that was saved: the file does not say it, so that
                it can be loaded without this library.
            average_aggregated_gradients: As for the optimizer that was saved, too.

        Returns:
            The model.

        Raises:
            ValueError: For ``legacy_opts`` with Keras 3, which has no such optimizers.
        """

        settings = GradientSettings.among(locals())
        self._backend.name  # noqa: B018  # has the backend imported, and its layers known to Keras

        def wrap(optimizer: Any) -> Any:
            return self.distributed(optimizer, settings)

        return load_model(self._keras, wrap, filepath, custom_optimizers, custom_objects, legacy_opts)

    def broadcast_global_variables(self, root_rank: int) -> None:
        """Gives all global variables of TensorFlow's default graph the values that they have on one rank.

        Args:
            root_rank: That rank.

        Raises:
            RuntimeError: Where there are none, as with Keras 3: use ``broadcast_variables`` or the
                BroadcastGlobalVariablesCallback.
        """
        self._backend.broadcast_global_variables(root_rank)

    def broadcast_variables(
        self, variables: Any, root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Gives variables, such as ``model.weights`` and ``model.optimizer.variables``, the values that
        they have on one rank.

        Args:
            variables: In an order that is equal on all ranks.
            root_rank: That rank.
            process_set: The ranks that take part.
        """
        given = list(variables() if callable(variables) else variables)
        self._backend.broadcast_variables(given, root_rank, process_set)

    def allreduce(
        self,
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: int | None = None,
        compression: type[Compressor] | None = NoneCompressor,
    ) -> Any:
        """Reduces a value over all ranks.

        Args:
            value: A number, a numpy array or a tensor.
            name: Of the operation, equal on all ranks.
            average: The deprecated form of ``op``.
            prescale_factor: Each element is multiplied by it before the reduction.
            postscale_factor: Each element is multiplied by it afterwards.
            op: The reduction; Average by default.
            compression: How the value travels.

        Returns:
            The reduction, as a tensor of the framework by which Keras computes.
        """
        hvd = self._backend.hvd
        tensor = hvd.allreduce(
            self._backend.tensor(value),
            average=average,
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=name,
        )
        return self._backend.result(tensor)

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """Gathers the values of all ranks.

        Args:
            value: A number, a numpy array or a tensor. The sizes of its first dimension may differ between
                ranks; a number is taken for an array of one.
            name: Of the operation, equal on all ranks.

        Returns:
            The values one after the other, along the first dimension, as a tensor.
        """
        tensor = self._backend.tensor(value)
        rows = tensor[None] if tensor.shape == () else tensor
        return self._backend.result(self._backend.hvd.allgather(rows, name=name))

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """Gives all ranks the value of one.

        Args:
            value: A number, a numpy array or a tensor, of equal shape on all ranks.
            root_rank: The rank whose value it is.
            name: Of the operation, equal on all ranks.

        Returns:
            The value of ``root_rank``, as a tensor.
        """
        tensor = self._backend.tensor(value)
        return self._backend.result(self._backend.hvd.broadcast(tensor, root_rank, name=name))

    def reducescatter(self, value: Any, name: str | None = None, op: int = Average) -> Any:
        """Reduces a value over all ranks, and deals out its rows.

        Args:
            value: A numpy array or a tensor.
            name: Of the operation, equal on all ranks.
            op: Average or Sum.

        Returns:
            This rank's share of the rows of the reduction, as a tensor.
        """
        tensor = self._backend.tensor(value)
        return self._backend.result(self._backend.hvd.reducescatter(tensor, op=op, name=name))

    def join(self) -> Any:
        """Says that this rank has no more data, and waits until every rank has said so. Until then it takes
        part in every operation with data that changes nothing.

        Returns:
            The last rank to do so.
        """
        return self._at_once().join()

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Waits until every rank of a process set has called it.

        Args:
            process_set: These ranks.
        """
        self._at_once().barrier(process_set=process_set)

    def _at_once(self) -> Any:
        """What runs operations without a tensor now: where graphs are for sessions, not the framework, in
        which they would wait for all operations of the graph.
        """
        return byte_objects.operations if self._backend.is_in_sessions() else self._backend.hvd
