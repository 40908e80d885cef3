"""The node that runs an MPI launcher as its one process, whose ranks are to stop and go on with it."""

import selectors
import signal

from ..nodes import guard
from ..nodes.children import Children
from ..nodes.guardian import Guardian
from ..nodes.local import LocalNode
from ..nodes.node import Events


class LauncherNode(LocalNode):
    """See ``nodes.node.Node``. The ranks are no members of the launcher's process group.

    ``passes_stop_on``: the launcher stops its ranks on all hosts when it gets SIGTSTP. Of any other one all
    processes of this host are stopped; those of other hosts soon wait for them.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        children: Children,
        guardian: Guardian,
        events: Events,
        passes_stop_on: bool,
    ) -> None:
        super().__init__("localhost", selector, children, guardian, events)
        self._passes_stop_on = passes_stop_on

    def signal(self, number: int) -> None:
        """Sends a signal to the launcher, and one that stops or continues to its ranks, too."""
        if self._passes_stop_on or number not in (signal.SIGSTOP, signal.SIGCONT):
            super().signal(signal.SIGTSTP if number == signal.SIGSTOP else number)
        else:
            guard.signal_all(self._children.strays(), number)
