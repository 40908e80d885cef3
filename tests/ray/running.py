"""A job on a thread, and what its ranks log while they train."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from load import within


class Running:
    """A job on a thread, and what its ranks log."""

    def __init__(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> None:
        self.logged: list[Any] = []
        self.result: Any = None
        self._function = lambda: function(*arguments)
        self._thread = threading.Thread(target=self._run, args=[executor], daemon=True)
        self._thread.start()

    def _run(self, executor: Any) -> None:
        try:
            self.result = executor.run(self._function, callbacks=[self.logged.append])
        except Exception as error:
            self.result = error

    def wait_for(self, ranks: int, seconds: float = 30) -> dict[str, Any]:
        """A step with so many of them, of those that have not been looked at."""
        return self._wait(lambda there: len(there) == ranks, f"of {ranks} ranks", seconds)

    def wait_without(self, ranks: Sequence[Any], seconds: float = 30) -> dict[str, Any]:
        """Likewise one without any of these ranks."""
        return self._wait(lambda there: not set(there) & set(ranks), f"without {ranks}", seconds)

    def _wait(self, is_wanted: Callable[[Sequence[Any]], bool], text: str, seconds: float) -> dict[str, Any]:
        seen, end = len(self.logged), time.monotonic() + within(seconds)
        while time.monotonic() < end and self._thread.is_alive():
            for value in self.logged[seen:]:
                if is_wanted(value["there"]):
                    return value
            time.sleep(0.01)
        raise AssertionError(f"no step {text}: {self.logged[-1:]}, {self.result}")

    def finish(self, seconds: float = 30) -> Any:
        self._thread.join(within(seconds))
        assert not self._thread.is_alive()
        return self.result

    def check_steps(self) -> None:
        """No step that was committed is lost; one may be done again that was not."""
        steps = [value["step"] for value in self.logged]
        assert all(b - a in (0, 1) for a, b in itertools.pairwise(steps)), steps
