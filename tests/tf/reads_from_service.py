"""A training that reads a dataset from a data service, and says which elements each rank has got."""

import sys

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

file, how = sys.argv[1:]
hvd.init()
rank, size = hvd.rank(), hvd.size()
config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
dataset = tf.data.Dataset.range(100).map(lambda number: number * number).batch(10)


def elements(dataset: tf.data.Dataset) -> list[int]:
    return sorted(int(number) for batch in dataset.as_numpy_iterator() for number in batch)


if how == "training":
    with tf_data_service(config, rank) as address:
        served = tf.data.experimental.service.distribute("distributed_epoch", address)
        seen = elements(dataset.apply(served))
        hvd.barrier()  # rank 0 ends the service
elif how == "turns":
    endless = dataset.repeat().send_to_data_service(config, rank, size, reuse_dataset=True, round_robin=True)
    seen = elements(endless.take(7))
else:
    seen = elements(dataset.send_to_data_service(config, rank, size, reuse_dataset=how == "shared"))
for number, theirs in enumerate(hvd.allgather_object(seen)):
    if rank == 0:
        print("rank", number, *theirs, flush=True)
if rank == 0 and how != "training":
    config.compute_client().shutdown()
