"""Downloads: what is asked for, what never is, and what happens when the other side misbehaves (P61, C158)."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban import fetch
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import FetchFailed, Refusal, UrlRefused
from hermes_kanban.fetch import Fetcher, addresses, is_inner, parsed
from tests.site import Site, serving

PUBLIC = "93.184.216.34"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


class Net:
    """A network of our own: names have the addresses that a test gives them, public ones lead to the test's server."""

    def __init__(self, site: Site | None = None, **hosts: list[str]) -> None:
        self.site = site
        self.hosts = {name.replace("_", "."): list(found) for name, found in hosts.items()}
        self.resolved: list[str] = []
        self.dialled: list[str] = []

    def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        return self.hosts[host] if host in self.hosts else addresses(host, port)

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        self.dialled.append(address[0])
        assert self.site, "nothing may be connected to"
        return socket.create_connection(("127.0.0.1", self.site.port), timeout)

    def fetcher(self, **options: Any) -> Fetcher:
        return Fetcher(SystemClock(), resolve=self.resolve, connect=self.connect, **options)


def get(url: str, fetcher: Fetcher | None = None) -> tuple[str, str, bytes]:
    """Download from the local server; return name, type and bytes."""
    with (fetcher or Fetcher(SystemClock(), private=True)).open(url) as download:
        return download.name, download.content_type, b"".join(download.chunks)


# --- what comes -------------------------------------------------------------------------------------------------
def test_a_file_comes_whole_with_name_and_type(site: Site) -> None:  # P61
    body = bytes(range(256)) * 1000
    url = site.page("/files/a%20b.bin?token=secret", body, content_type="text/html; charset=utf-8")
    with Fetcher(SystemClock(), private=True).open(url + "#part") as download:
        assert (download.name, download.size, download.content_type) == ("a b.bin", len(body), "text/html")
        assert download.url == site.url("/files/a%20b.bin")  # P63: a query may hold a secret
        assert b"".join(download.chunks) == body
    path, headers = site.asked[0]
    assert path == "/files/a%20b.bin?token=secret"
    assert headers["Host"] == f"127.0.0.1:{site.port}"
    assert {"Authorization", "Cookie", "Referer"} & set(headers) == set()


def test_a_server_may_name_the_file(site: Site) -> None:
    plain = site.page("/x", b"1", content_disposition='attachment; filename="report.pdf"')
    coded = site.page("/y", b"1", content_disposition="attachment; filename*=UTF-8''%C3%BCber.txt")
    assert (get(plain)[0], get(coded)[0], get(site.page("/", b"1"))[0]) == ("report.pdf", "über.txt", "")


def test_bytes_in_chunks_have_no_size_before(site: Site) -> None:
    site.pages["/c"] = (200, {"Transfer-Encoding": "chunked"}, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    with Fetcher(SystemClock(), private=True).open(site.url("/c")) as download:
        assert download.size is None
        assert b"".join(download.chunks) == b"abcde"


def test_packed_bytes_are_kept_only_under_a_packed_name(site: Site) -> None:
    assert get(site.page("/a.tar.gz", b"zz", content_encoding="gzip"))[2] == b"zz"
    with pytest.raises(UrlRefused, match="packed"):
        get(site.page("/a.txt", b"zz", content_encoding="gzip"))


def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # C158
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert get(site.page("/a", b"direct"))[2] == b"direct"


# --- redirects --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(site: Site, status: int) -> None:  # P61
    site.page("/sub/end.txt", b"there")
    url = site.redirect("/start", "sub/end.txt", status)
    assert get(url) == ("end.txt", "", b"there")
    assert site.paths == ["/start", "/sub/end.txt"]


def test_five_redirects_are_followed_and_six_are_not(site: Site) -> None:  # P61
    for number in range(6):
        site.redirect(f"/{number}", site.url(f"/{number + 1}"))
    site.page("/6", b"end")
    assert get(site.url("/1"))[2] == b"end"
    site.asked.clear()
    with pytest.raises(UrlRefused, match="more than 5 redirects"):
        get(site.url("/0"))
    assert site.paths == ["/0", "/1", "/2", "/3", "/4", "/5"]


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:70/x", "http://u:p@127.0.0.1/", "http://["]
)
def test_a_redirect_to_no_plain_url_is_refused(site: Site, to: str) -> None:  # P61, C158
    with pytest.raises(UrlRefused):
        get(site.redirect("/a", to))
    assert site.paths == ["/a"]


def test_a_redirect_without_an_end_is_refused(site: Site) -> None:
    with pytest.raises(UrlRefused, match="302"):
        get(site.page("/a", b"", 302))


def test_a_redirect_with_raw_bytes_keeps_them(site: Site) -> None:
    site.page("/%C3%A4%20b", b"found")
    site.redirect("/a", "/ä b".encode().decode("latin-1"))
    assert get(site.url("/a"))[2] == b"found"


# --- addresses --------------------------------------------------------------------------------------------------
INNER_LIST = """
127.0.0.1 127.8.8.8 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 169.254.0.1
100.64.0.1 100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
168.63.129.16 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 ff0e::1 ::ffff:8.8.8.8
::ffff:127.0.0.1 ::ffff:169.254.169.254 ::7f00:1 ::8.8.8.8 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::808:808
2002:7f00:1:: 2002:a00:1:: 2001:db8::1 2001::1 100::1 4000::1 nonsense
"""
INNER = INNER_LIST.split()
SPELLINGS = "127.0.0.1 127.1 0x7f.0.0.1 2130706433 017700000001 [::1] [::ffff:127.0.0.1] localhost 169.254.169.254"
OUTER = [PUBLIC, "8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:801::200e", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INNER)
def test_an_inner_address_is_never_connected_to(address: str) -> None:  # C158
    assert is_inner(address)
    net = Net(evil_example=[address])
    with pytest.raises(UrlRefused, match="inner address"):
        get("http://evil.example/x", net.fetcher())
    assert (net.resolved, net.dialled) == (["evil.example"], [])


@pytest.mark.parametrize("address", OUTER)
def test_a_public_address_is_allowed(address: str) -> None:
    assert not is_inner(address)


@pytest.mark.parametrize("host", SPELLINGS.split())
def test_no_way_of_writing_an_inner_address_helps(site: Site, host: str) -> None:  # C158
    site.page("/x", b"inner")
    with pytest.raises((UrlRefused, FetchFailed)):  # a system that does not know a way of writing cannot resolve it
        get(site.url("/x", host), Fetcher(SystemClock()))
    assert site.asked == []


def test_one_inner_address_among_several_is_enough(site: Site) -> None:  # C158
    net = Net(site, both_example=[PUBLIC, "10.0.0.1"])
    with pytest.raises(UrlRefused, match=r"10\.0\.0\.1"):
        get("http://both.example/x", net.fetcher())
    assert net.dialled == []


@pytest.mark.parametrize("to", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "[::1]", "inner.example"])
def test_a_redirect_to_an_inner_address_is_refused(site: Site, to: str) -> None:  # P61, C158
    net = Net(site, public_example=[PUBLIC], inner_example=["192.168.0.1"])
    site.redirect("/start", f"http://{to}/latest/meta-data")
    with pytest.raises(UrlRefused, match="inner address"):
        get("http://public.example/start", net.fetcher())
    assert (net.dialled, site.paths) == ([PUBLIC], ["/start"])


def test_a_host_is_resolved_once_a_hop_and_the_checked_address_is_used(site: Site) -> None:  # C158
    net = Net(site, public_example=[PUBLIC], other_example=["8.8.8.8"])
    real = net.resolve

    def turning(host: str, port: int) -> list[str]:
        found = real(host, port)
        net.hosts[host] = ["127.0.0.1"]  # whoever asks again gets an inner address
        return found

    net.resolve = turning  # type: ignore[method-assign]
    site.redirect("/a", "http://other.example/b")
    site.page("/b", b"pinned")
    assert get("http://public.example/a", net.fetcher())[2] == b"pinned"
    assert net.dialled == [PUBLIC, "8.8.8.8"]
    assert net.resolved == ["public.example", "other.example"]
    assert [headers["Host"] for _, headers in site.asked] == ["public.example", "other.example"]


def test_the_next_address_is_tried_when_one_does_not_answer(site: Site) -> None:
    net = Net(site, two_example=["8.8.8.8", PUBLIC])
    real = net.connect

    def failing(address: tuple[str, int], timeout: float) -> socket.socket:
        made = real(address, timeout)
        if address[0] == PUBLIC:
            return made
        made.close()
        raise ConnectionRefusedError(111, "Connection refused")

    net.connect = failing  # type: ignore[method-assign]
    site.page("/a", b"x")
    assert get("http://two.example/a", net.fetcher())[2] == b"x"
    assert net.dialled == ["8.8.8.8", PUBLIC]


# --- the URL itself ---------------------------------------------------------------------------------------------
BAD_URLS = [
    *("", "x", "/etc/passwd", "file:///etc/passwd", "ftp://example.org/x", "javascript:1", "http:", "http://"),
    *("http:///x", "http://:80/x", "http://example.org:0/", "http://example.org:99999/", "http://example.org:x/"),
    *("http://user@example.org/", "http://user:pw@example.org/", "http://@example.org/", "http://:pw@example.org/"),
    *("http://exa mple.org/", "http://example.org/a b", "http://example.org/\r\nX: y", "http://example.org\\@inner/"),
    *("http://[::1", "http://[fe80::1%25lo]/", "http://a%00b/", "http://\ud800/", f"http://{'ä' * 80}.example/"),
    "http://example.org/" + "a" * 5000,
]


@pytest.mark.parametrize("url", BAD_URLS, ids=range(len(BAD_URLS)))
def test_what_is_no_plain_url_is_refused_before_anything_is_asked(url: str) -> None:  # P61
    net = Net()
    with pytest.raises(UrlRefused) as refusal:
        get(url, net.fetcher(private=True))
    assert (net.resolved, net.dialled) == ([], [])
    assert refusal.value.hint
    assert "pw" not in refusal.value.message  # P63


def test_a_url_is_written_as_servers_want_it() -> None:
    found = parsed("HTTPS://Bücher.Example:443/ä b?q=ü".replace(" ", "%20"))
    assert (found.host, found.port, found.authority) == ("xn--bcher-kva.example", 443, "xn--bcher-kva.example")
    assert found.path == "/%C3%A4%20b?q=%C3%BC"
    assert parsed("http://[2606:4700::1]:8080").authority == "[2606:4700::1]:8080"


# --- servers that misbehave -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "error"), [(404, UrlRefused), (204, UrlRefused), (500, FetchFailed), (429, FetchFailed)]
)
def test_anything_but_the_file_is_a_refusal(site: Site, status: int, error: type[Refusal]) -> None:
    with pytest.raises(error, match=str(status)):
        get(site.page("/a", b"", status))


def test_half_a_file_is_none(site: Site) -> None:  # C104
    site.pages["/a"] = (200, {"Content-Length": "100"}, b"only this")
    site.pages["/b"] = (200, {"Transfer-Encoding": "chunked"}, b"ff\r\nonly this")
    for path in ("/a", "/b"):
        with pytest.raises(FetchFailed, match="broke off"):
            get(site.url(path))


def test_what_is_no_http_is_a_failure() -> None:
    with raw(b"220 mail.example ESMTP\r\n") as port, pytest.raises(FetchFailed):
        get(f"http://127.0.0.1:{port}/")


def test_a_refused_connection_and_an_unknown_name_are_failures() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(FetchFailed, match="no connection"):
            get(f"http://127.0.0.1:{free.getsockname()[1]}/")

    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(FetchFailed, match="cannot be resolved"):
        get("http://nowhere.example/", Fetcher(SystemClock(), resolve=unknown))


class Ticking:
    """A clock that goes on by a second whenever somebody looks at it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


class Dripping:
    """A connection whose other side sends one byte at a time, for ever."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0
        self.waits: list[float] = []
        self.closed = False

    def settimeout(self, seconds: float) -> None:
        self.waits.append(seconds)

    def sendall(self, data: bytes) -> None:
        return

    def recv_into(self, buffer: Any) -> int:
        buffer[:1] = self.text[self.at : self.at + 1] or b"x"
        self.at += 1
        return 1

    def __enter__(self) -> Dripping:
        return self

    def __exit__(self, *_error: object) -> None:
        self.closed = True


@pytest.mark.parametrize("text", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_dripping_bytes_do_not_outlast_the_time_limit(text: bytes) -> None:  # P61
    drip = Dripping(text)
    net = Net(slow_example=[PUBLIC])
    fetcher = Fetcher(Ticking(), seconds=100, resolve=net.resolve, connect=lambda *_: drip)  # type: ignore[arg-type,return-value]
    with pytest.raises(FetchFailed, match="longer than 100 seconds"):
        get("http://slow.example/x", fetcher)
    assert 90 < drip.at < 100
    assert drip.closed
    assert max(drip.waits) <= fetch.IDLE_SECONDS
    assert drip.waits[-1] <= 1  # the last waits are cut to what is left


def test_a_silent_server_and_a_silent_resolver_end_with_the_limit() -> None:
    over = threading.Event()

    def asleep(host: str, port: int) -> list[str]:
        over.wait()
        return []

    with raw(None) as port, pytest.raises(FetchFailed):
        get(f"http://127.0.0.1:{port}/", Fetcher(SystemClock(), private=True, seconds=0.2))
    try:
        with pytest.raises(FetchFailed, match="in time"):
            get("http://asleep.example/", Fetcher(SystemClock(), seconds=0.2, resolve=asleep))
    finally:
        over.set()


class raw:
    """A server that answers one connection with these bytes (None: with silence); `heard` is what it got."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.heard = b""

    def __enter__(self) -> int:
        self.stack = ExitStack()
        self.listener = self.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            self.heard = connection.recv(65_536)
            if self.answer is None:
                connection.recv(1)  # until the other side hangs up
            else:
                connection.sendall(self.answer)

    def __exit__(self, *_error: object) -> None:
        self.thread.join()
        self.stack.close()


# --- TLS --------------------------------------------------------------------------------------------------------
def test_tls_asks_for_the_host_by_its_name() -> None:  # C158: the address is pinned, the name stays
    server = raw(b"no TLS at all")
    with server as port, pytest.raises(FetchFailed):
        get(f"https://files.example:{port}/", Fetcher(SystemClock(), private=True, resolve=lambda *_: ["127.0.0.1"]))
    assert b"files.example" in server.heard


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_a_certificate_must_be_trusted_and_of_the_named_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    asked = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=files.example -addext subjectAltName=DNS:files.example"
    argv = ["openssl", *asked.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    fetcher = Fetcher(SystemClock(), private=True, resolve=lambda *_: ["127.0.0.1"])
    with serving(context) as site:
        site.page("/a", b"secured")
        url = site.url("/a", "files.example").replace("http:", "https:")
        with pytest.raises(UrlRefused, match="certificate"):
            get(url, fetcher)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert get(url, fetcher)[2] == b"secured"
        with pytest.raises(UrlRefused, match="certificate"):
            get(url.replace("files.example", "other.example"), fetcher)
    assert site.paths == ["/a"]
