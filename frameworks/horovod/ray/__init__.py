"""Jobs on the machines of a Ray cluster::

    import ray
    from horovod.ray import RayExecutor

    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=4)
    executor.start()
    results = executor.run(train)  # which calls hvd.init(), as in any other job
    executor.shutdown()

The actors of a ``RayExecutor`` are the ranks themselves. An ``ElasticRayExecutor``, or a ``RayExecutor`` with
``min_workers``, has an agent of horovodrun on each node, which starts the ranks as processes of their own.
"""

try:
    import ray  # noqa: F401
except ImportError as error:
    raise ImportError("horovod.ray needs Ray: pip install 'horovod[ray]'") from error

from horovod.ray import ray_logger
from horovod.ray.elastic import ElasticRayExecutor, RayHostDiscovery
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor", "RayHostDiscovery", "ray_logger"]
