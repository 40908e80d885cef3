"""Elastic steps over plain memory, for faults between hosts; see plain.py for what the lines mean."""

import time

import plain
from plain import Memory, allreduce, check

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState


def steps(seconds: str) -> None:
    """Until so long has passed, however often the job begins anew."""
    hvd.init()
    end = time.time() + float(seconds)
    state = ObjectState(objects.broadcast_object, hvd.rank, step=0, end=end)

    @run_fn
    def train(state: ObjectState) -> None:
        begun = f"begins at step {state.step} at {time.time():.3f}"
        print(f"rank {hvd.rank()} of {hvd.size()} {begun}", flush=True)
        over = False
        while not over:
            check(allreduce("large", Memory(4096)).is_all(hvd.size()))
            is_late = hvd.rank() == 0 and time.time() > state.end
            over = not allreduce("over", Memory(1, float(is_late))).is_all(0.0)
            state.step += 1
            state.commit()
            if state.step == 5:
                print(f"rank {hvd.rank()} is under way", flush=True)
            time.sleep(0.01)

    train(state)
    plain.right()


if __name__ == "__main__":
    plain.main(globals())
