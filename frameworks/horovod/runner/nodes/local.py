"""The ranks of this host: started, watched and ended by this process, whose children they are."""

import contextlib
import itertools
import os
import selectors
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from .. import limits, post_mortem
from ..ending import Exit
from . import binding, guard, stacks
from .children import Children
from .guardian import Guardian
from .node import STREAMS, Events, Work
from .pipes import ReadPipe
from .rank_process import rank_environment, shared_by, start_rank

_LINGER_SECONDS = 0.3
_STRAY_TERM_SECONDS = 0.5
_STRAY_KILL_SECONDS = 1.0
_STRAY_POLL_SECONDS = 0.01
_STOP_SECONDS = 1.0
_STOP_POLL_SECONDS = 0.005
_OF_GROUPS = (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)  # as those of a terminal
_NEVER = float("inf")


@dataclass
class _Rank:
    number: int
    pid: int
    may_be_replaced: bool = False
    slot: int = 0
    is_alive: bool = True


@dataclass
class _Strays:
    """What is left of the ranks, while it is being ended. The times are those of time.monotonic."""

    begin: float
    asked: bool = False
    next_look: float = field(default=0.0)


class LocalNode:
    """The node that this process runs on; see ``node.Node``.

    Ranks and streams are looked at in the caller's loop: ``selector`` gets callables to be called when ready,
    and ``children`` is told to reap on SIGCHLD.
    """

    is_lost = False

    def __init__(
        self,
        host: str,
        selector: selectors.BaseSelector,
        children: Children,
        guardian: Guardian,
        events: Events,
    ) -> None:
        self.host = host
        self.stopped: list[int] = []
        self.is_finished = False
        self._selector = selector
        self._children = children
        self._guardian = guardian
        self._events = events
        self._memory_kills = post_mortem.MemoryKills()
        self._work: Work | None = None
        self._ranks: list[_Rank] = []
        self._streams: dict[tuple[int, str], ReadPipe] = {}  # by rank and name
        self._paused: set[tuple[int, str]] = set()
        self._strays: _Strays | None = None

    def start(self, work: Work) -> None:
        """Starts the ranks. Raises OSError when the system refuses one; those before it run then."""
        self._work = work
        if work.orphan_seconds is not None:
            self._guardian.allow(work.orphan_seconds)
        for place in work.placements:
            share = binding.share_of_rank(work.bind_to, place.local_rank, place.local_size)
            environment = rank_environment(
                work.environment, place, work.size, share.threads if share else None
            )
            environment |= self._gpus(place.local_rank, place.local_size)
            self.start_one(place.rank, work.command, environment, place.rank == work.stdin_rank, share)

    def start_worker(self, number: int, variables: Mapping[str, str], slots: int) -> None:
        """Starts one process more of the work. Raises OSError when the system refuses it."""
        assert self._work is not None
        limits.make_room(limits.Load(slots))
        slot = self._free_slot()
        share = binding.share_of_rank(self._work.bind_to, slot, slots)
        own = shared_by(slots, share.threads if share else None)
        environment = {**own, **self._work.environment, **variables, **self._gpus(slot, slots)}
        self.start_one(number, self._work.command, environment, reads_input=False, share=share)
        self._ranks[-1].may_be_replaced, self._ranks[-1].slot = True, slot

    def start_one(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        reads_input: bool,
        share: binding.Share | None = None,
    ) -> None:
        """Starts one process, which counts as rank ``number`` in all that the node tells."""
        folder = None if self._work is None else self._work.wdir
        process = start_rank(command, environment, reads_input, share.cores if share else None, folder)
        self._guardian.watch(process.pid)
        self._children.expect(process.pid)
        unwatched = list(process.outputs)
        try:
            for key in [(number, name) for name in STREAMS]:
                room = partial(self._has_room, key)
                self._streams[key] = ReadPipe(self._selector, unwatched[0], partial(self._take, key), room)
                del unwatched[0]
        except OSError:
            self._undo_start(process.pid, number, unwatched)
            raise
        self._ranks.append(_Rank(number, process.pid))
        self._events.started(number, process.pid)

    def signal(self, number: int) -> None:
        """Sends a signal to the process groups of the ranks that live; a stopped one is made to see it."""
        groups = {rank.pid for rank in self._living()}
        _signal_groups(groups, number)
        if number in (signal.SIGINT, signal.SIGTERM):
            _signal_groups(groups, signal.SIGCONT)
        elif number == signal.SIGSTOP:
            _wait_until_stopped(groups)

    def signal_one(self, rank: int, number: int) -> None:
        """Sends a signal to the process group of one rank, if it lives."""
        for each in self._living():
            if each.number == rank:
                _signal_groups({each.pid}, number)
                if number == signal.SIGTERM:
                    _signal_group(each.pid, signal.SIGCONT)

    def find_stopped(self) -> None:
        """Looks which ranks are stopped; see ``stopped``."""
        self.stopped = [rank.number for rank in self._living() if guard.is_stopped(rank.pid)]

    def show_stacks(self, ranks: Collection[int] | None = None) -> None:
        """Has the ranks that live write where they are to their stderr; says it for those that cannot."""
        asked = self._living()
        if ranks is not None:
            asked = [rank for rank in asked if rank.number in ranks and not guard.is_stopped(rank.pid)]
        numbers = {rank.pid: rank.number for rank in asked}
        for pid, shown in stacks.show(numbers, may_die=ranks is None).items():
            said = [f"the stacks of process {each}, innermost call first:" for each in shown]
            said = said or [f"process {pid} shows no stacks; {stacks.whereabouts(pid)}"]
            self._say(numbers[pid], said)

    def say(self, text: str, most: int | None = None) -> None:
        """Writes a line among the errors of each rank that lives, or of the first ``most``."""
        for rank in self._living()[:most]:
            self._say(rank.number, [text])

    def tend(self, now: float) -> float:
        """Tells of ranks that have ended, goes on with streams that have room again, and with ``finish``."""
        self._tell_exits()
        for key in [each for each in self._paused if self._events.has_room(*each)]:
            self._paused.discard(key)
            self._streams[key].hold(False)
        if self._strays is None or self.is_finished:
            return _NEVER
        if now >= self._strays.next_look:
            self._end_strays(self._strays, now)
        return now if self.is_finished else self._strays.next_look  # the end is news: nobody waits any more

    def finish(self) -> None:
        """Ends what the ranks have left behind: first it may end by itself, then it is asked, then killed."""
        if self._strays is None:
            self._strays = _Strays(time.monotonic())

    def abandon(self) -> None:
        """Takes what is in the pipes, and closes them."""
        for key, stream in list(self._streams.items()):
            stream.drain()
            if stream.is_open:
                stream.close()
                self._take(key, b"")

    def close(self) -> None:
        """Kills what is left; in an orderly end there is nobody."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        for rank in self._living():
            _signal_group(rank.pid, signal.SIGKILL)

    def _say(self, rank: int, lines: Sequence[str]) -> None:
        if (rank, "stderr") in self._streams:
            text = "".join(f"horovodrun: {line}\n" for line in lines)
            self._events.output(rank, "stderr", text.encode())

    def _gpus(self, local_rank: int, local_size: int) -> dict[str, str]:
        assert self._work is not None
        count, environment = self._work.gpus_per_rank, self._work.environment
        return binding.visible_gpus(count, local_rank, local_size, environment)

    def _free_slot(self) -> int:
        """Which part of the host the next worker gets: that of one which has ended, if there is one."""
        taken = {rank.slot for rank in self._living()}
        return next(slot for slot in itertools.count() if slot not in taken)

    @property
    def has_ranks(self) -> bool:
        """Whether some live."""
        return bool(self._living())

    def _living(self) -> list[_Rank]:
        return [rank for rank in self._ranks if rank.is_alive]

    def _tell_exits(self) -> None:
        exits = []
        for rank in self._living():
            code = self._children.take_code(rank.pid)
            if code is None:
                continue
            rank.is_alive = False
            self._guardian.forget(rank.pid)
            if (
                code != 0 and rank.may_be_replaced
            ):  # what it leaves behind would be in the way of the next one
                _signal_group(rank.pid, signal.SIGKILL)
            killer = post_mortem.killer(code, self._memory_kills)
            exits.append(Exit(rank.number, code, killer=killer, notes=tuple(post_mortem.notes(code, killer))))
        if exits:
            self._ranks = self._living()
            self._events.ended(exits)

    def _undo_start(self, pid: int, number: int, unwatched: Sequence[int]) -> None:
        """Ends a process whose output cannot be watched, before it counts as a rank."""
        _signal_group(pid, signal.SIGKILL)
        self._guardian.forget(pid)
        for descriptor in unwatched:
            os.close(descriptor)
        for name in STREAMS:
            if stream := self._streams.pop((number, name), None):
                stream.close()

    def _has_room(self, key: tuple[int, str]) -> bool:
        if self._events.has_room(*key):
            return True
        self._paused.add(key)
        return False

    def _take(self, key: tuple[int, str], data: bytes) -> None:
        if not data:
            self._paused.discard(key)
            del self._streams[key]
        self._events.output(*key, data)

    def _end_strays(self, strays: _Strays, now: float) -> None:
        found = self._children.strays()
        elapsed = now - strays.begin
        strays.next_look = now + _STRAY_POLL_SECONDS
        if not found:
            self.is_finished = True
        elif elapsed > _LINGER_SECONDS + _STRAY_TERM_SECONDS + _STRAY_KILL_SECONDS:
            self.is_finished = True
            self.abandon()  # what cannot be killed may hold the pipes open for ever
        elif elapsed > _LINGER_SECONDS + _STRAY_TERM_SECONDS:
            guard.signal_all(found, signal.SIGKILL)
        elif elapsed > _LINGER_SECONDS and not strays.asked:
            guard.signal_all(found, signal.SIGTERM)
            guard.signal_all(found, signal.SIGCONT)
            strays.asked = True


def _signal_groups(groups: Collection[int], number: int) -> None:
    """What a rank can handle is its own: it is not to lose processes that it needs until it ends."""
    if number not in _OF_GROUPS:
        with contextlib.suppress(OSError):  # no descriptor is left to look
            guard.signal_all(guard.to_ask(guard.in_groups(groups), number), number)
            return
    for group in groups:
        _signal_group(group, number)


def _wait_until_stopped(groups: Collection[int]) -> None:
    """A process that has the signal and has not run since still takes what comes: keys for the shell."""
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and not all(map(guard.is_stopped, guard.in_groups(groups))):
        time.sleep(_STOP_POLL_SECONDS)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass
