"""Several backward passes for a step: what a step has left that was not made is dropped."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd

PASSES = 3


@pytest.fixture(autouse=True)
def alone():
    hvd.init()


def numbers(seed, count):
    """Of a start, and of so many gradients."""
    random = np.random.default_rng(seed)
    return [random.standard_normal((2, 3)).astype("float32") for _ in range(count + 1)]


def sgd_of(kind):
    if kind == "keras":
        return keras, keras.optimizers.SGD(1.0)
    if kind == "scaled":
        return keras, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))
    return tf_keras, (tf_keras.optimizers if kind == "tf_keras" else tf_keras.optimizers.legacy).SGD(1.0)


@pytest.mark.parametrize("back", ["restore", "sync", "on_reset"])
@pytest.mark.parametrize("kind", ["keras", "scaled", "tf_keras", "legacy"])
@pytest.mark.parametrize("left", [1, 2])
def test_a_step_of_keras_that_was_not_made_leaves_nothing(kind, left, back):
    library, optimizer = sgd_of(kind)
    start, *gradients = numbers(left, left + PASSES)
    model = library.Sequential([library.layers.InputLayer((2,)), library.layers.Dense(3, use_bias=False)])
    weights = model.weights[0]
    weights.assign(start)
    optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=PASSES)
    state = hvd.elastic.KerasState(model, optimizer, epoch=0)
    scale = 2.0**15 if kind == "scaled" else 1.0

    def make_pass(gradient):
        optimizer.apply_gradients([(tf.constant(gradient * scale), weights)])

    for gradient in gradients[:left]:
        make_pass(gradient)
    getattr(state, back)()
    for gradient in gradients[left:-1]:
        make_pass(gradient)
        np.testing.assert_array_equal(weights.numpy(), start)
    make_pass(gradients[-1])
    np.testing.assert_allclose(weights.numpy(), start - sum(gradients[left:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["keras", "scaled", "tf_keras"])
def test_what_only_a_dropped_pass_had_a_gradient_for_is_left_alone(kind):
    """Zeros would let the decay of weights move it."""
    library, optimizer = sgd_of(kind)
    getattr(optimizer, "inner_optimizer", optimizer).weight_decay = 0.5
    model = library.Sequential([library.layers.InputLayer((1,)), library.layers.Dense(1)])
    kernel, bias = model.weights
    optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=PASSES)
    state = hvd.elastic.KerasState(model, optimizer, epoch=0)
    bias.assign([2.0])
    state.commit()
    optimizer.apply_gradients([(tf.ones_like(kernel), kernel), (tf.ones_like(bias), bias)])
    state.restore()
    before = float(kernel.numpy()[0, 0])
    for _ in range(PASSES):
        optimizer.apply_gradients([(tf.zeros_like(kernel), kernel), (None, bias)])
    assert float(kernel.numpy()[0, 0]) == 0.5 * before
    assert bias.numpy().tolist() == [2.0]


def made_by_tensorflow_1(start):
    """A variable, the gradient that is to be set, and the operation of one pass."""
    variable = tf.compat.v1.Variable(start, use_resource=True)
    gradient = tf.compat.v1.Variable(tf.zeros_like(variable), use_resource=True)
    optimizer = hvd_tf.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=PASSES
    )

    def make_pass():
        pairs = optimizer.compute_gradients(
            (lambda: tf.reduce_sum(variable * gradient))
            if tf.executing_eagerly()
            else tf.reduce_sum(variable * gradient),
            [variable],
        )
        return optimizer.apply_gradients(pairs)

    return variable, gradient, make_pass


@pytest.mark.parametrize("back", ["restore", "sync", "on_reset"])
def test_a_step_of_a_session_that_was_not_made_leaves_nothing(back):
    start, *gradients = numbers(5, 1 + PASSES)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable, gradient, make_pass = made_by_tensorflow_1(start)
        operation = make_pass()
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        state = hvd_tf.elastic.TensorFlowState([variable], session=session)
        state.sync()  # makes the operations that it needs
        state.restore()
        tf.compat.v1.get_default_graph().finalize()
        for number, each in enumerate(gradients):
            gradient.load(each, session)
            session.run(operation)
            if number == 0:
                getattr(state, back)()
        np.testing.assert_allclose(session.run(variable), start - sum(gradients[1:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("back", ["restore", "sync", "on_reset"])
def test_an_eager_step_of_tensorflow_1_that_was_not_made_leaves_nothing(back):
    start, *gradients = numbers(6, 1 + PASSES)
    variable, gradient, make_pass = made_by_tensorflow_1(start)
    state = hvd_tf.elastic.TensorFlowState([variable])
    for number, each in enumerate(gradients):
        gradient.assign(each)
        make_pass()
        if number == 0:
            getattr(state, back)()
    np.testing.assert_allclose(variable.numpy(), start - sum(gradients[1:]), rtol=1e-5, atol=1e-5)
