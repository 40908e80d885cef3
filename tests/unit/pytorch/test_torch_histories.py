"""Random histories of elastic training whose samples a DataLoader reads: each sample once."""

import elastic_histories
import pytest
from torch.utils.data import DataLoader

from horovod.torch.elastic import ElasticSampler


def read(sampler, size):
    loader = DataLoader(sampler.dataset, batch_size=size, sampler=sampler)
    return lambda: (batch.tolist() for batch in loader)


@pytest.mark.parametrize("part", range(4))
def test_each_sample_is_processed_once(part):
    elastic_histories.check(range(part, elastic_histories.COUNT, 4), ElasticSampler, read)
