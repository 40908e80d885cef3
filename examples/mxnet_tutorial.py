"""The usual first script: a fully connected network, Adam, five epochs; on a GPU where there is one.

horovodrun -np 2 python examples/mxnet_tutorial.py
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import horovod.mxnet as hvd  # before MXNet, which it makes importable with numpy 1.24 and later

# isort: split
import mxnet as mx
from mxnet import autograd, gluon


def load_data() -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's digits, enlarged from 8x8 to the 28x28 pixels of the well-known data set."""
    digits = load_digits()
    images = np.kron(digits.images.astype(np.float32) / 16, np.ones((1, 3, 3), np.float32))
    return np.pad(images, ((0, 0), (2, 2), (2, 2))), digits.target.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="samples per process and step")
    args = parser.parse_args()

    hvd.init()
    mx.random.seed(42)
    context = mx.gpu(hvd.local_rank()) if mx.context.num_gpus() else mx.cpu()

    images, labels = load_data()
    rows = len(labels) // hvd.size()  # equally many on all processes
    part = slice(hvd.rank() * rows, (hvd.rank() + 1) * rows)
    data = gluon.data.ArrayDataset(images[part], labels[part])
    loader = gluon.data.DataLoader(data, batch_size=args.batch, shuffle=True, last_batch="discard")

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    optimizer = mx.optimizer.create("adam", learning_rate=0.001 * hvd.size())
    trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)

    for epoch in range(args.epochs):
        metric = mx.metric.Accuracy()
        for batch, targets in loader:
            batch, targets = batch.as_in_context(context), targets.as_in_context(context)
            with autograd.record():
                output = net(batch)
                loss = loss_of(output, targets)
            loss.backward()
            trainer.step(len(batch))
            metric.update([targets], [output])
        mean_loss = hvd.allreduce(loss.mean(), name="loss").asscalar()
        accuracy = hvd.metric.get_global_mean(metric.get()[1], name="accuracy")
        if hvd.is_master():
            print(f"epoch {epoch + 1}  loss {mean_loss:.4f}  training accuracy {accuracy:.1%}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
