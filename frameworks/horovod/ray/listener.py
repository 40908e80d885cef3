"""The driver's ear: shows the output of the ranks as it comes, and keeps what they log for the callbacks."""

import collections
import sys
import threading

import ray

from horovod.bootstrap.text import escaped
from horovod.runner.call.child import show
from horovod.runner.output import Display, LinePrefixer, Tail

from .meeting import END, LOG, OUTPUT, SYNC, VERDICT, WARNING, Event, Meeting

_POLL_SECONDS = 10.0
_SYNC_SECONDS = 2.0


class Listener:
    """Hears what comes to a meeting, on a thread of its own, until the meeting is closed.

    ``has_verdict`` is set once a rank has said why it gives up; ``tails`` are the last lines of each rank.
    """

    def __init__(self, meeting: Meeting) -> None:
        self.logged: collections.deque[bytes] = collections.deque()
        self.has_verdict = threading.Event()
        self.tails: dict[tuple[int, str], Tail] = collections.defaultdict(Tail)
        self._meeting = meeting
        self._prefixers: dict[tuple[int, str], LinePrefixer] = {}
        self._is_in_step = threading.Event()
        threading.Thread(target=self._run, name="hvd-ray-listener", daemon=True).start()

    def catch_up(self) -> None:
        """Waits until all is shown that has come by now, the lines that have not ended, too."""
        self._is_in_step.clear()
        self._meeting.tell(SYNC)
        self._is_in_step.wait(_SYNC_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                events = self._meeting.poll(_POLL_SECONDS)
            except ray.exceptions.RayError:  # of another process, which has ended
                return
            for event in events:
                if event.kind == END:
                    return
                self._take(event)

    def _take(self, event: Event) -> None:
        if event.kind.startswith(OUTPUT):
            self._show(event.rank, event.kind.removeprefix(OUTPUT), event.data)
        elif event.kind == LOG:
            self.logged.append(event.data)
        elif event.kind == VERDICT:
            self.has_verdict.set()
        elif event.kind == WARNING:
            _write("stderr", f"horovod.ray: warning: {escaped(event.data.decode())}\n".encode())
        elif event.kind == SYNC:
            for (_, stream), prefixer in self._prefixers.items():
                if prefixer.has_rest:
                    _write(stream, prefixer.take_rest() + b"\n")
            self._is_in_step.set()

    def _show(self, rank: int, stream: str, data: bytes) -> None:
        key = rank, stream
        self.tails[key].feed(data)
        if key not in self._prefixers:
            self._prefixers[key] = Display().prefixer(rank, stream, False)
        _write(stream, self._prefixers[key].feed(data))


def _write(stream: str, data: bytes) -> None:
    """To what the driver has for stdout or stderr by now, which in a notebook is no descriptor."""
    show(sys.stderr if stream == "stderr" else sys.stdout, data.decode(errors="backslashreplace"))
