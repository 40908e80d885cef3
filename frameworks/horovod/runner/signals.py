"""Turns the launcher's signals into bytes on a descriptor, so that one loop handles them with all else."""

import os
import signal
import threading
import time

STOP_SIGNALS = (signal.SIGTSTP, signal.SIGCONT)
_CAUGHT = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    *STOP_SIGNALS,
)
_MAY_STAY_BLOCKED = (signal.SIGUSR1, signal.SIGUSR2)  # whose meaning is the program's
_STOP_SECONDS = 0.2


class SignalQueue:
    """Catches signals while it is open (main thread only). ``descriptor`` is readable when ``take`` has
    some.

    A SIGHUP that was ignored before (nohup) stays ignored, also in the ranks. What the parent had blocked
    comes through (but SIGUSR1 and SIGUSR2), here and in the ranks, which inherit the mask: else nobody could
    end them, and the launcher would not see them end.

    ``continued``: how many SIGCONT have come, taken or not.
    """

    def __init__(self) -> None:
        self.continued = 0
        self.descriptor, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._previous_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._previous = {
            number: signal.signal(number, lambda *_: None)
            for number in _CAUGHT
            if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN)
        }
        signal.signal(signal.SIGCONT, self._note_continued)
        ours = set(_CAUGHT).difference(_MAY_STAY_BLOCKED)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)  # once all have their handlers

    def _note_continued(self, *_: object) -> None:
        self.continued += 1

    def catch(self, number: int) -> None:
        """One more, also where it was ignored before."""
        self._previous.setdefault(signal.Signals(number), signal.signal(number, lambda *_: None))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])

    def stop(self, seen: int) -> None:
        """Stops this process, as SIGTSTP does by default, if no more SIGCONT than ``seen`` have come; returns
        when one more has come.
        """
        only = {signal.SIGTSTP}
        signal.pthread_sigmask(signal.SIG_BLOCK, only)
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        # What is pending is taken back by the system when SIGCONT comes: so none comes too early.
        if self.continued != seen:
            signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, only)
        signal.signal(signal.SIGTSTP, handler)
        while self.continued == seen:  # the system stops nobody whom no shell could have go on
            time.sleep(_STOP_SECONDS / 4)

    def take(self) -> list[int]:
        """The signals since the last call; 0 stands for a ``wake``."""
        try:
            return list(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return []

    def wake(self) -> None:
        """Makes ``descriptor`` readable, from any thread."""
        try:
            os.write(self._write_end, b"\0")
        except OSError:  # full: it is readable already; closed: nobody listens any more
            pass

    def close(self) -> None:
        """Gives the signals back."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        os.close(self.descriptor)
        os.close(self._write_end)


def stay_in_foreground() -> None:
    """Stops the job of the shell that this process is in while that is in the background, as the system does
    with whoever reads the terminal there. A rank is of another session, and would take what is typed for
    the shell.
    """
    while _is_in_background():
        begin = time.monotonic()
        os.killpg(os.getpgrp(), signal.SIGTTIN)
        time.sleep(_STOP_SECONDS / 4)
        if time.monotonic() < begin + _STOP_SECONDS:  # ignored, or there is no shell that could go on with it
            return


def _is_in_background() -> bool:
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # no terminal, or another one than that of the shell
        return False
