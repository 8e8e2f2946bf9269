"""The outbound client never reaches inside, however it is asked to; a canary listens there."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from yarl import URL

from connectors.outbound import Forbidden, Outbound, TooLarge, Unreachable, is_public, resolve
from streams.runtime.settings import Outbound as OutboundSettings

LOCAL = OutboundSettings(allow=("127.0.0.1/32",))
INSIDE = OutboundSettings()

TLS = ssl.create_default_context()
"""Made once: it reads all certificates of the machine."""


def client_of(settings: OutboundSettings, **more) -> Outbound:
    return Outbound(settings, **{"tls": TLS, **more})


FORBIDDEN = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001:0:53aa:64c::1",
    "2001:db8::1",
    "2002:a9fe:a9fe::",
    "2002:808:808::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]


class Server:
    """An HTTP server on 127.0.0.1 that counts connections and answers with fixed bytes."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.answer: Callable[[asyncio.StreamWriter], Awaitable[None]] = self.fine

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await self.answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def fine(self, writer: asyncio.StreamWriter) -> None:
        await self.say(writer, b"hello")

    async def say(self, writer, body, *headers, status="200 OK"):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None):
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}/"
    try:
        yield server
    finally:
        listening.close()


def at(*addresses: str):
    """A resolver that answers with these, one look-up after the other."""
    left = list(addresses)

    async def lookup(host: str, port: int):
        return left.pop(0).split(",")

    return lookup


@pytest.mark.parametrize("address", FORBIDDEN)
def test_addresses_that_are_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450::1"])
def test_public_addresses(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::]",
        "100.64.0.1",
        "169.254.169.254",
        "１２７.0.0.1",
        "127。0。0。1",
    ],
)
async def test_no_spelling_of_an_inside_host_reaches_the_canary(host):
    """Real look-ups: what getaddrinfo makes of a spelling is what is checked."""
    async with serving() as canary, client_of(INSIDE, timeout_ms=5_000) as client:
        with pytest.raises((Forbidden, Unreachable)) as refused:
            await client.request("GET", f"http://{host}:{canary.port}/")
        if isinstance(refused.value, Unreachable):  # then it is no name at all
            with pytest.raises((OSError, UnicodeError)):
                await resolve(URL(f"http://{host}/").raw_host, canary.port)
        assert canary.connections == 0


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_name_at_an_inside_address_is_not_called(address):
    async with serving() as canary, client_of(INSIDE, lookup=at(address)) as client:
        with pytest.raises(Forbidden, match="not public"):
            await client.request("GET", f"http://shop.example:{canary.port}/")
        assert canary.connections == 0


@pytest.mark.parametrize("addresses", ["8.8.8.8,127.0.0.1", "127.0.0.1,8.8.8.8"])
async def test_one_inside_address_among_several_is_enough(addresses):
    async with serving() as canary, client_of(INSIDE, lookup=at(addresses)) as client:
        with pytest.raises(Forbidden, match=r"127\.0\.0\.1"):
            await client.request("GET", f"http://shop.example:{canary.port}/")
        assert canary.connections == 0


async def test_a_name_that_changes_between_check_and_connect(monkeypatch):
    """There is one look-up, and the connection goes to what it said."""
    went: list[str] = []

    async def connect(_socket, address):
        went.append(address[0])
        raise OSError(address)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    async with client_of(INSIDE, lookup=at("8.8.8.8", "127.0.0.1")) as client:
        with pytest.raises(Unreachable):
            await client.request("GET", "http://rebinding.example/")
        with pytest.raises(Forbidden):
            await client.request("GET", "http://rebinding.example/")
    assert went == ["8.8.8.8"]


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_redirects_are_answers(status):
    async with serving() as canary, serving() as front, client_of(LOCAL) as client:
        front.answer = lambda w: front.say(w, b"", f"Location: {canary.url}", status=status)
        answer = await client.request("GET", front.url)
        assert answer.status == int(status[:3])
        assert answer.headers["Location"] == canary.url
        assert canary.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://127.0.0.1/",
        "unix:///tmp/x",
        "//127.0.0.1/",
        "/path",
        "",
        "http://",
        "http:///path",
        "http://user@{}/",
        "http://example.com@{}/",
        "http://a:b@{}/",
        "http://{}/\r\nX: y",
        "http://{}\t/",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "javascript:alert(1)",
    ],
)
async def test_urls_that_are_not_called(url):
    async with serving() as canary, client_of(LOCAL) as client:
        with pytest.raises(Forbidden):
            await client.request("GET", url.format(f"127.0.0.1:{canary.port}"))
        assert canary.connections == 0


@pytest.mark.parametrize("header", ["a\r\nX: y", "a\nb", "\ud83d"])
async def test_headers_cannot_smuggle(header):
    async with serving() as canary, client_of(LOCAL) as client:
        with pytest.raises((Forbidden, Unreachable)):
            await client.request("GET", canary.url, headers={"X-A": header})
        assert all(b"X: y" not in request for request in canary.requests)


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async with serving() as proxy, serving() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        async with client_of(LOCAL) as client:
            assert (await client.request("GET", server.url)).body == b"hello"
        assert proxy.connections == 0


async def test_the_answer_is_bounded_in_bytes_and_encoding():
    async with serving() as server, client_of(LOCAL, answer_bytes_max=1_000) as client:
        server.answer = lambda w: server.say(w, b"x" * 1_000)
        assert len((await client.request("GET", server.url)).body) == 1_000
        server.answer = lambda w: server.say(w, b"x" * 1_001)
        with pytest.raises(TooLarge, match="1,000 bytes"):
            await client.request("GET", server.url)
        packed = gzip.compress(bytes(50_000_000))
        server.answer = lambda w: server.say(w, packed[:900], "Content-Encoding: gzip")
        with pytest.raises(TooLarge, match="gzip"):
            await client.request("GET", server.url)
        assert b"accept-encoding: identity" in server.requests[0].lower()


async def test_the_whole_request_is_bounded_in_time():
    """A byte now and then resets any timeout that is not of the whole."""

    async def drip(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving() as server, client_of(LOCAL, timeout_ms=300) as client:
        server.answer = drip
        with pytest.raises(Unreachable, match="in time"):
            await client.request("GET", server.url)


async def test_nobody_there_and_nonsense_are_unreachable():
    async with serving() as server, client_of(LOCAL) as client:
        server.answer = lambda w: _raw(w, b"nonsense\r\n\r\n")
        with pytest.raises(Unreachable):
            await client.request("GET", server.url)
        server.answer = lambda w: _raw(w, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal")
        with pytest.raises(Unreachable):
            await client.request("GET", server.url)
    async with client_of(LOCAL) as client:
        with pytest.raises(Unreachable):
            await client.request("GET", server.url)


async def test_the_name_stays_the_name_for_hosts():
    async with serving() as server, client_of(LOCAL, lookup=at("127.0.0.1")) as client:
        await client.request("POST", f"http://hook.example:{server.port}/x", content=b"{}")
        assert f"host: hook.example:{server.port}".encode() in server.requests[0].lower()


async def test_the_name_stays_the_name_for_certificates(tmp_path):
    """The connection goes to an address, the certificate must be the name's all the same."""
    certificate(tmp_path, "hook.example")
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    theirs = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    lookup = at("127.0.0.1", "127.0.0.1", "127.0.0.1")
    async with serving(ours) as server:
        async with client_of(LOCAL, lookup=lookup, tls=theirs) as client:
            answer = await client.request("GET", f"https://hook.example:{server.port}/")
            assert answer.body == b"hello"
            with pytest.raises(Unreachable, match="certificate"):
                await client.request("GET", f"https://other.example:{server.port}/")
        async with client_of(LOCAL, lookup=lookup) as client:
            with pytest.raises(Unreachable, match="certificate"):
                await client.request("GET", f"https://hook.example:{server.port}/")


def certificate(folder, name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


async def _raw(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(content)
    await writer.drain()
