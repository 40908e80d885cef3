"""How the functions of this package are traced."""

import tensorflow as tf

# AutoGraph rewrites what is called in a tf.function, so that its `if` and `for` may depend on tensors. Ours
# never do, and rewriting takes seconds in the first step of a model of a hundred variables.
as_written = tf.autograph.experimental.do_not_convert
