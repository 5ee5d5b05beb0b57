"""Downloads for attachments: http and https only, and never from an inner address unless configured (P61, C158).

Each hop's host is resolved once, every address that it has is checked, and the connection goes to a checked address
itself: a name that changes its mind between check and connection leads nowhere. At most five redirects are followed,
each checked anew. Proxies and other settings of the environment are not used. One time limit spans everything.
Loaded only when something is downloaded.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import queue
import socket
import ssl
import threading
from contextlib import contextmanager
from urllib.parse import quote, unquote, urljoin, urlsplit

from hermes_kanban.base.errors import FetchFailed, UrlRefused
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from hermes_kanban.base.clock import Clock

    Resolve = Callable[[str, int], list[str]]
    Connect = Callable[[tuple[str, int], float], socket.socket]

MOST_REDIRECTS = 5
WHOLE_SECONDS = 120.0  # name, connections, redirects and bytes together
CONNECT_SECONDS = 15.0  # one address
IDLE_SECONDS = 30.0  # one silence
CHUNK = 65_536
LONGEST_URL = 4096

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_SAFE = "%/:=&?~#+!$,;'@()*[]"
_PACKED_NAMES = (".gz", ".tgz", ".bz2", ".xz", ".br", ".zst", ".z")
_GLOBAL = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Where clouds tell a machine its secrets; some of these count as public.
_METADATA = frozenset(ipaddress.IPv4Address(text) for text in ("169.254.169.254", "168.63.129.16", "192.0.0.192"))


@record
class Target(Record):
    """One hop. `authority` is what the Host header says; `path` has the query."""

    scheme: str
    host: str
    port: int
    authority: str
    path: str

    @property
    def shown(self) -> str:
        """The URL without its query, which may hold a secret (P63)."""
        return f"{self.scheme}://{self.authority}{self.path.partition('?')[0]}"


@record
class Download(Record):
    """What comes: the name that it suggests, the size that it states, the type that it claims, its bytes."""

    name: str
    size: int | None
    content_type: str
    url: str
    chunks: Iterable[bytes]


class Deadline:
    """The end of the whole time limit."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock.monotonic() + seconds

    def left(self, most: float) -> float:
        """Return how many seconds may still be waited, at most so many.

        Raises:
            FetchFailed: none.
        """
        left = self._end - self._clock.monotonic()
        if left <= 0:
            raise FetchFailed(
                f"the download took longer than {self._seconds:g} seconds",
                hint="try again, or fetch it by other means and attach the file",
            )
        return min(left, most)


class Fetcher:
    """Opens downloads.

    Args:
        clock: for the time limit.
        private: whether inner addresses are allowed (`kanban.attach_private_addresses`).
        seconds: the whole time limit.
        resolve, connect: the doors to the network (tests put their own).
    """

    def __init__(
        self,
        clock: Clock,
        *,
        private: bool = False,
        seconds: float = WHOLE_SECONDS,
        resolve: Resolve | None = None,
        connect: Connect = socket.create_connection,
    ) -> None:
        self._clock = clock
        self._private = private
        self._seconds = seconds
        self._resolve = resolve or addresses
        self._connect = connect

    @contextmanager
    def open(self, url: str) -> Iterator[Download]:
        """Follow a URL to what it stands for.

        Raises:
            UrlRefused: it, or where it leads, is not for us: trying again does not help.
            FetchFailed: the network or the server failed: trying again may help.
        """
        deadline = Deadline(self._clock, self._seconds)
        for _ in range(MOST_REDIRECTS + 1):
            target = parsed(url)
            with self._connected(target, deadline) as connection:
                response = _asked(connection, target, deadline)
                if response.status not in _REDIRECTS:
                    yield _download(response, target, deadline)
                    return
                url = _next(url, target, response)
        raise UrlRefused(
            f"more than {MOST_REDIRECTS} redirects, the last one to {parsed(url).shown[:200]}",
            hint="give the address where it ends",
            argument="url",
        )

    @contextmanager
    def _connected(self, target: Target, deadline: Deadline) -> Iterator[socket.socket]:
        plain = self._dialled(target, self._checked(target, deadline), deadline)
        with plain:
            if target.scheme != "https":
                yield plain
                return
            with _secured(plain, target, deadline) as secured:
                yield secured

    def _checked(self, target: Target, deadline: Deadline) -> list[str]:
        """Resolve a host once; every address that it has must be allowed."""
        found = _in_time(lambda: self._resolve(target.host, target.port), target, deadline)
        for text in found if not self._private else ():
            if is_inner(text):
                raise UrlRefused(
                    f"{target.authority} has the inner address {text}: nothing is fetched from there",
                    hint="attach the file itself; kanban.attach_private_addresses in config.yaml allows inner hosts",
                    argument="url",
                )
        return found

    def _dialled(self, target: Target, found: list[str], deadline: Deadline) -> socket.socket:
        error: OSError | None = None
        for text in found:
            try:
                return self._connect((text, target.port), deadline.left(CONNECT_SECONDS))
            except OSError as refused:
                error = refused
        raise _failed(target, f"no connection: {_words(error)}" if error else "it has no address")


# --- addresses --------------------------------------------------------------------------------------------------
def addresses(host: str, port: int) -> list[str]:
    """Return every address of a host, each once, in the system's order."""
    return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


def is_inner(text: str) -> bool:
    """Whether an address is none of the public internet: private, loopback, link-local, multicast, reserved.

    Of IPv6 only global unicast is public (no IPv4-mapped address is); one that leads to an IPv4 address through a
    translator or a tunnel counts as that one.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_multicast or not address.is_global or address in _METADATA
    if address in _NAT64:
        return is_inner(str(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)))
    if address not in _GLOBAL or not address.is_global:
        return True
    return address.sixtofour is not None and is_inner(str(address.sixtofour))


def _in_time(work: Callable[[], list[str]], target: Target, deadline: Deadline) -> list[str]:
    """Do what knows no time limit of its own (asking for a name) in a thread, and wait only so long."""
    box: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            box.put(work())
        except (OSError, UnicodeError) as error:
            box.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        found = box.get(timeout=deadline.left(IDLE_SECONDS))
    except queue.Empty:
        raise _failed(target, "its name could not be resolved in time") from None
    if isinstance(found, Exception):
        raise _failed(target, f"its name cannot be resolved: {_words(found)}") from found
    return found


# --- the URL ----------------------------------------------------------------------------------------------------
def parsed(url: str) -> Target:
    """Take a URL apart.

    Raises:
        UrlRefused: no URL of http or https, or one with a user name or password. The message does not repeat it.
    """
    if len(url) > LONGEST_URL or "\\" in url or any(char <= " " or char == "\x7f" for char in url):
        raise _no_url(f"it has more than {LONGEST_URL} characters, or blanks, control characters or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("ascii" if (parts.hostname or "").isascii() else "idna").decode("ascii")
    except (ValueError, UnicodeError):
        raise _no_url("its host or port is none") from None
    if parts.scheme not in _PORTS:
        raise _no_url("only http:// and https:// are allowed")
    if "@" in parts.netloc:
        raise _no_url("it holds a user name or password, which would be stored with the card")
    if not host or port == 0 or "%" in host:
        raise _no_url("its host or port is none")
    standard = _PORTS[parts.scheme]
    authority = f"[{host}]" if ":" in host else host
    if port not in (None, standard):
        authority += f":{port}"
    path = quote(parts.path or "/", safe=_SAFE)
    query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    return Target(parts.scheme, host, port or standard, authority, path + query)


def _no_url(why: str) -> UrlRefused:
    return UrlRefused(f"this URL cannot be used: {why}", hint="give a plain http:// or https:// URL", argument="url")


def _next(url: str, target: Target, response: http.client.HTTPResponse) -> str:
    """Return where a redirect leads; its bytes are as raw as the server sent them."""
    location = response.getheader("Location")
    if not location:
        raise _turned_down(target, f"it answers {response.status} without saying where to go")
    try:
        return urljoin(url, quote(location.strip().encode("latin-1", "replace"), safe=_SAFE))
    except ValueError:
        raise _turned_down(target, "it leads to something that is no URL") from None


# --- one request ------------------------------------------------------------------------------------------------
class _Timed(io.RawIOBase):
    """Reads a socket; each wait is as long as one silence may be, and ends with the whole limit."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(self._deadline.left(IDLE_SECONDS))
        return self._connection.recv_into(buffer)


class _Line:
    """What `http.client` wants of a socket: only the way to read."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._raw = _Timed(connection, deadline)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._raw)


def _secured(plain: socket.socket, target: Target, deadline: Deadline) -> ssl.SSLSocket:
    """Begin TLS: the certificate must be of the host that was named, not of the address."""
    try:
        plain.settimeout(deadline.left(IDLE_SECONDS))
        return ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
    except ssl.SSLCertVerificationError as error:
        raise _turned_down(target, f"its certificate is not to be trusted: {error.verify_message}") from error
    except (OSError, ValueError) as error:
        raise _failed(target, f"no secure connection: {_words(error)}") from error


def _asked(connection: socket.socket, target: Target, deadline: Deadline) -> http.client.HTTPResponse:
    lines = (
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "User-Agent: hermes-kanban",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    line: Any = _Line(connection, deadline)
    try:
        connection.settimeout(deadline.left(IDLE_SECONDS))
        connection.sendall("\r\n".join((*lines, "", "")).encode("ascii"))
        response = http.client.HTTPResponse(line, method="GET")
        response.begin()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failed(target, f"no answer: {_words(error)}") from error
    return response


def _download(response: http.client.HTTPResponse, target: Target, deadline: Deadline) -> Download:
    deadline.left(IDLE_SECONDS)
    if response.status in (408, 425, 429) or response.status >= 500:
        raise _failed(target, f"it answers {response.status}")
    if response.status != http.client.OK:
        raise _turned_down(target, f"it answers {response.status}")
    name = _name(response, target)
    packed = response.getheader("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity") and not name.lower().endswith(_PACKED_NAMES):
        raise _turned_down(target, "it sends its bytes packed although that was not asked for")
    kind = response.headers.get_content_type() if response.getheader("Content-Type") else ""
    return Download(name, response.length, kind[:100], target.shown, _chunks(response, target))


def _name(response: http.client.HTTPResponse, target: Target) -> str:
    """Return the name that the server gives, else the last part of the path."""
    try:
        given = response.headers.get_filename()
    except (ValueError, LookupError):  # an unknown character set
        given = None
    return given or unquote(target.path.partition("?")[0].rpartition("/")[2])


def _chunks(response: http.client.HTTPResponse, target: Target) -> Iterator[bytes]:
    stated = response.length
    got = 0
    try:
        while chunk := response.read1(CHUNK):
            got += len(chunk)
            yield chunk
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failed(target, f"it broke off after {got} bytes: {_words(error)}") from error
    if stated is not None and got != stated:  # half a file is none (C104)
        raise _failed(target, f"it broke off after {got} of {stated} bytes")


def _failed(target: Target, why: str) -> FetchFailed:
    return FetchFailed(f"{target.shown[:200]} could not be fetched: {why}", hint="try again", argument="url")


def _turned_down(target: Target, why: str) -> UrlRefused:
    return UrlRefused(
        f"{target.shown[:200]} cannot be fetched: {why}", hint="look at the address in a browser", argument="url"
    )


def _words(error: BaseException | None) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)[:200]
