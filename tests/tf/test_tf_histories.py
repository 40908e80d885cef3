"""Random histories of elastic training whose samples tf.data reads: each sample once."""

import elastic_histories
import pytest

from horovod.elastic.indices import ElasticIndices
from horovod.tensorflow.elastic import indices_dataset


def read(indices, size):
    dataset = indices_dataset(indices).map(lambda index: index + 1).batch(size).prefetch(2)
    return lambda: ((batch.numpy() - 1).tolist() for batch in dataset)


DEFAULT = 1  # part; TensorFlow takes half a second for a history, in which it traces what tf.data runs
REST = [pytest.param(part, marks=pytest.mark.full) for part in range(DEFAULT, 40)]


@pytest.mark.slow
@pytest.mark.parametrize("part", [*range(DEFAULT), *REST])
def test_each_sample_is_processed_once(part):
    elastic_histories.check(range(part, elastic_histories.COUNT, 40), ElasticIndices, read)
