"""What --metrics names: Prometheus asks, a file is written, or a TrainJob of Kubeflow is told."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from horovod.bootstrap.text import escaped

from ..nodes.loop import Loop
from . import formats
from .places import TRAINJOB, Place
from .serving import Door, encoded
from .view import View

_BACKLOG = 16
_MOST_REQUEST = 1 << 13
_REQUEST_SECONDS = 2.0
_FILE_SECONDS, _TRAINJOB_SECONDS = 1.0, 5.0  # from one time to the next
_LAST_SECONDS = 3.0
_URL, _CA, _TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))


def tell(
    places: Sequence[Place], view: View, loop: Loop, say: Callable[[str], None], stack: contextlib.ExitStack
) -> None:
    """Tells all of them while the job runs. ``say`` gets lines for people, on any thread. Raises ValueError
    where one cannot be used.
    """
    for place in places:
        shown = place if isinstance(place, str) else f"{place[0]}:{place[1]}"
        try:
            if not isinstance(place, str):
                say(f"metrics at {escaped(_listen(loop, view, place, stack))}")
                continue
            if place == TRAINJOB:  # whose controller may be away now and then
                again = _TRAINJOB_SECONDS, partial(_push, view, _controller(os.environ))
            else:
                again = _FILE_SECONDS, partial(_write, view, place)
                again[1]()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ValueError(f"--metrics {shown}: {reason}") from None
        stack.callback(_Again(*again, f"warning: --metrics {escaped(shown)}", say).close)


def _listen(loop: Loop, view: View, address: tuple[str, int], stack: contextlib.ExitStack) -> str:
    """Serves by HTTP there. Returns where that is."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    stack.callback(Door(loop, listener, lambda connection: answer_http(connection, view)).close)
    shown = f"[{host}]" if ":" in host else host or os.uname().nodename
    return f"http://{shown}:{listener.getsockname()[1]}/metrics"


class _Again:
    """Does something again and again, on a thread, and at the end of the job for the last time."""

    def __init__(
        self, seconds: float, act: Callable[[], None], title: str, say: Callable[[str], None]
    ) -> None:
        """``title`` stands before what goes wrong, which is said once."""
        self._seconds = seconds
        self._act = act
        self._title = title
        self._say = say
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="horovod-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """A disk or network that stands still is not waited for."""
        self._is_over.set()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        has_told = is_over = False
        while not is_over:
            is_over = self._is_over.wait(self._seconds)
            try:
                self._act()
            except (OSError, ValueError) as error:
                if not has_told:
                    self._say(f"{self._title}: {escaped(str(error))}")
                has_told = True


def _write(view: View, path: str) -> None:
    """A file, as a whole: another one takes its place."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise ValueError("it is there, and is no plain file")
    new = f"{path}.{os.urandom(4).hex()}"
    try:
        with open(new, "xb") as file:  # which follows no link
            file.write(encoded(formats.public(view.snapshot())))
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


class _Controller(NamedTuple):
    """Where it takes the status of the TrainJob that this pod is of; the files of its certificate, and of a
    token, which the kubelet replaces now and then.
    """

    host: str
    port: int | None
    path: str
    certificate: str
    token: str


def _controller(environ: Mapping[str, str]) -> _Controller:
    """Raises ValueError where Kubeflow has not said all."""
    missing = [name for name in (_URL, _CA, _TOKEN) if not environ.get(name)]
    if missing:
        raise ValueError(f"{missing[0]} is not set: Kubeflow sets it where TrainJobStatus is enabled")
    url = urllib.parse.urlsplit(environ[_URL])
    if url.scheme != "https" or not url.hostname:
        raise ValueError(f"{_URL} is not an address of https")
    return _Controller(url.hostname, url.port, url.path, environ[_CA], environ[_TOKEN])


def _push(view: View, to: _Controller) -> None:
    """Tells it the status."""
    with open(to.token, encoding="ascii") as file:
        token = file.read().strip()
    body = json.dumps({"trainerStatus": formats.trainer_status(view.snapshot())})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    trusts = ssl.create_default_context(cafile=to.certificate)
    connection = http.client.HTTPSConnection(to.host, to.port, timeout=_REQUEST_SECONDS, context=trusts)
    with contextlib.closing(connection):
        try:
            connection.request("POST", to.path, body, headers)
            status = connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(f"{to.host} does not answer: {error}") from None
    if status >= 300 and status != http.HTTPStatus.TOO_MANY_REQUESTS:
        raise OSError(f"{to.host} answers {status}")


def answer_http(connection: socket.socket, view: View) -> None:
    """One request of Prometheus, or for JSON."""
    method, path = _request(connection)
    status, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", b""
    if method != "GET":
        status = "405 Method Not Allowed"
    elif path == "/metrics":
        body = formats.prometheus(view.snapshot()).encode(errors="replace")
    elif path == "/status":
        kind, body = "application/json", encoded(formats.public(view.snapshot()))
    else:
        status, body = "404 Not Found", b"see /metrics, for Prometheus, and /status\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)


def _request(connection: socket.socket) -> tuple[str, str]:
    """Method and path of a request; empty ones where it is none, or comes too slowly."""
    data, deadline = b"", time.monotonic() + _REQUEST_SECONDS
    while b"\r\n\r\n" not in data and len(data) < _MOST_REQUEST and time.monotonic() < deadline:
        more = connection.recv(_MOST_REQUEST)
        if not more:
            break
        data += more
    words = data.partition(b"\r\n")[0].decode("ascii", errors="replace").split(" ")
    return (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")
