"""Secrets in text: known forms are found and taken out, whatever only looks like chance stays (P63)."""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import pkgutil
import random
import string
import uuid
from collections.abc import Callable
from typing import Any

import detect_secrets.plugins
import pytest
from detect_secrets.plugins.base import RegexBasedDetector
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.model import secrets
from hermes_kanban.model.secrets import PRIVATE_KEY, ROWS, Found, Redactor, find, redact

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
_chance = random.Random(63)


def some(letters: str, count: int) -> str:
    """Letters by chance, the same in each run; the last ones have a digit and a letter of each case."""
    return "".join(_chance.choice(letters) for _ in range(count))


def mixed(count: int) -> str:
    return some(ALNUM, count - 3) + "a1B"


# Kind -> how its tokens are made. Put together here, so that no scanner of other people takes the file for a leak.
TOKENS: dict[str, list[str]] = {
    "Anthropic key": ["sk-ant-" + "api03-" + mixed(93)],
    "API key": [
        *(
            "sk-" + mixed(48),
            "sk-proj-" + mixed(60),
            "sk-or-v1-" + some(HEX, 64),
            "sk-" + mixed(20) + "T3BlbkFJ" + mixed(20),
        ),
        *("gsk_" + mixed(52), "xai-" + mixed(80), "pplx-" + mixed(48), "nvapi-" + mixed(64), "r8_" + mixed(37)),
        *("tvly-dev-" + mixed(32), "SG." + mixed(22) + "." + mixed(43), "lin_api_" + mixed(40), "ntn_" + mixed(46)),
        "csk-" + some(string.ascii_lowercase + string.digits, 48),
    ],
    "Google key": ["AIza" + mixed(35)],
    "Google token": ["ya29." + mixed(60)],
    "Google client secret": ["GOCSPX-" + mixed(28)],
    "GitHub token": [f"gh{kind}_" + mixed(36) for kind in "pousr"] + ["github_pat_" + mixed(22) + "_" + mixed(59)],
    "GitLab token": ["glpat-" + mixed(20), "glrt-" + mixed(20), "glcbt-64_" + mixed(20), "GR1348941" + mixed(20)],
    "Slack token": [
        *(f"xox{kind}-123456789012-123456789012-" + mixed(24) for kind in "bpars"),
        "xapp-1-A012-123-" + some(HEX, 64),
    ],
    "AWS key": [lead + some(string.ascii_uppercase + "234567", 16) for lead in ("AKIA", "ASIA")],
    "Hugging Face token": ["hf_" + mixed(34)],
    "npm token": ["npm_" + mixed(36)],
    "PyPI token": ["pypi-" + "AgEIcHlwaS5vcmc" + mixed(100)],
    "Docker token": ["dckr_pat_" + mixed(27)],
    "Stripe key": ["sk_live_" + mixed(24), "rk_test_" + mixed(24), "whsec_" + mixed(32)],
    "DigitalOcean token": ["dop_v1_" + some(HEX, 64)],
    "Vault token": ["hvs." + mixed(90)],
    "Databricks token": ["dapi" + some(HEX, 32)],
    "Shopify token": ["shpat_" + some(HEX, 32)],
    "Square token": ["sq0csp-" + mixed(43), "sq0atp-" + mixed(22)],
    "Mailchimp key": [some(HEX, 32) + "-us12"],
    "age key": ["AGE-SECRET-KEY-1" + some(string.ascii_uppercase + string.digits, 58)],
    "JSON web token": ["eyJ" + mixed(33) + ".eyJ" + mixed(60) + "." + mixed(43)],
    "bot token": ["123456789:AA" + mixed(33)],
    "Azure key": [mixed(3) + "8Q~" + mixed(34)],
}
# Kind -> a text with {} in the place of the secret, and the secret.
PLACES: dict[str, list[tuple[str, str]]] = {
    "Bearer token": [("Authorization: Bearer {}", mixed(20)), ("authorization: bearer {}'", mixed(40) + "==")],
    "authorization header": [("'Authorization: Basic {}'", "dXNlcjpwYXNzd29yZDE="), ("X-Api-Key: {}", mixed(32))],
    "AWS secret key": [
        ("aws_secret_access_key = {}", mixed(40)),
        ('"SecretAccessKey": "x", AWS_SECRET_KEY="{}"', mixed(40)),
    ],
    "Azure key": [("AccountName=x;AccountKey={};", mixed(86) + "==")],
    "npm token": [("//host.example/:_authToken={}", str(uuid.UUID(int=7)))],
    "password in a URL": [
        ("postgres://user:{}@db.example:5432/x", "hunter2"),
        ("git clone https://me:{}@host.example/r.git", "p%40ss!"),
        ("redis://:{}@host.example", "pw"),
    ],
    "token in a URL": [
        ("https://host.example/x?token={}&y=1", "abcdef123"),
        ("https://host.example/x?a=1&access_token={}", mixed(30)),
        ("<a href='https://host.example/?a=1&amp;api_key={}'>", mixed(30)),
        ("https://blob.example/c?sv=1&sig={}&se=2", mixed(40) + "%3D"),
    ],
    "webhook": [
        ("https://hooks.slack.com/{} is the place", "services/T0000/B0000/" + mixed(24)),
        ("https://chat.example/api/webhooks/{}", "1234567890123/" + mixed(68)),
    ],
}
KINDS = sorted({*TOKENS, *PLACES})
SAMPLES = [(kind, "set {}, please", token) for kind, tokens in TOKENS.items() for token in tokens]
SAMPLES += [(kind, text, secret) for kind, pairs in PLACES.items() for text, secret in pairs]
each_sample = pytest.mark.parametrize(
    ("kind", "text", "secret"), SAMPLES, ids=[f"{s[0]}-{i}" for i, s in enumerate(SAMPLES)]
)


def key_block(name: str = "RSA ", lines: int = 24, head: str = "") -> str:
    body = base64.b64encode(_chance.randbytes(48 * lines + 31)).decode()
    wrapped = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join(
        [f"-----BEGIN {name}PRIVATE KEY-----", *head.splitlines(), *wrapped, f"-----END {name}PRIVATE KEY-----"]
    )


# --- known forms -------------------------------------------------------------------------------------------------
def test_each_kind_has_a_sample() -> None:
    assert {row.kind for row in ROWS} == set(KINDS)


@each_sample
def test_a_secret_is_found_by_kind_and_place_and_never_shown(kind: str, text: str, secret: str) -> None:  # P63
    whole = "wörds before: " + text.format(secret)
    (found,) = find(whole)
    assert found == Found(kind, whole.index(secret))
    assert secret not in repr(found)


@each_sample
def test_a_secret_is_taken_out_and_nothing_else(kind: str, text: str, secret: str) -> None:  # P63
    line = f"wörds {text.format(secret)}\r\n".encode()
    cleaned = redact(line)
    assert cleaned.decode() == f"wörds {text.format(f'[redacted: {kind}]')}\r\n"
    assert redact(cleaned) == cleaned
    assert find(cleaned.decode()) == ()


@pytest.mark.parametrize(
    "around", ['"{}"', "'{}',", "({})", "KEY={}", "KEY: {}", "<{}>", "`{}`", "{}\n", "\t{}", "x={};"]
)
def test_a_token_is_found_whatever_stands_around_it(around: str) -> None:
    for kind, tokens in TOKENS.items():
        for token in tokens:
            assert [found.kind for found in find(around.format(token))] == [kind], token


def test_several_in_one_text_are_each_told() -> None:
    first, second = TOKENS["GitHub token"][0], TOKENS["AWS key"][0]
    text = f"ä {first} and {second} and {first}"
    assert [(found.kind, found.position) for found in find(text)] == [
        ("GitHub token", 2),
        ("AWS key", text.index(second)),
        ("GitHub token", text.rindex(first)),
    ]
    assert redact(text.encode()).count(b"[redacted: ") == 3


def test_a_token_inside_of_a_url_counts_once() -> None:
    token = TOKENS["GitHub token"][0]
    assert [found.kind for found in find(f"https://x:{token}@host.example/y")] == ["GitHub token"]


# --- what is none ------------------------------------------------------------------------------------------------
INNOCENT = [
    *(hashlib.new(name, b"x").hexdigest() for name in ("md5", "sha1", "sha256", "sha512")),
    str(uuid.UUID(int=2**100)),
    "sha512-" + base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    "h1:" + base64.b64encode(hashlib.sha256(b"x").digest()).decode(),
    '"integrity": "sha512-' + base64.b64encode(hashlib.sha512(b"y").digest()).decode() + '",',
    "pkg==1.2.3 --hash=sha256:" + hashlib.sha256(b"z").hexdigest(),
    "image@sha256:" + hashlib.sha256(b"i").hexdigest(),
    "commit " + hashlib.sha1(b"c").hexdigest(),
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + mixed(43) + " someone@host",
    "-----BEGIN CERTIFICATE-----\n" + some(ALNUM, 64) + "\n-----END CERTIFICATE-----",
    "sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0=",
    "task-" + some(string.ascii_lowercase, 40),
    "risk-based, desk-bound, sk-learn-compatible-estimators-and-pipelines",
    "npm_config_registry and hf_transfer_enabled and pypi-server and glob-parent",
    "the variable ghp_ begins such tokens, AKIA others, eyJ.a.b too",
    "Bearer authentication is required; send Authorization: Bearer $TOKEN or Bearer <token>",
    "Authorization: Basic realm-of-the-server",
    "https://user@host.example/x, ssh://git@host.example:22/r, http://[::1]:80/, npm:pkg@1.2.3",
    "https://user:${PASSWORD}@host.example https://user:<password>@host.example https://u:{pw}@host.example",
    "https://u:***@host.example/?token=$TOKEN&api_key=<key>&sig={sig}",
    "https://host.example/?page_token=2&author=x&keyword=abcdefgh#tokens",
    "grep for '-----BEGIN PRIVATE KEY-----' in the tree",
    "git@host.example:owner/name.git",
    "postgres://localhost:5432/name?sslmode=require",
]


@pytest.mark.parametrize("text", INNOCENT, ids=range(len(INNOCENT)))
def test_hashes_ids_and_talk_about_secrets_are_none(text: str) -> None:  # P63: no entropy guessing
    assert find(text) == ()
    if PRIVATE_KEY not in redact(text.encode()).decode():
        assert redact(text.encode()) == text.encode()


@given(st.binary(max_size=300))
def test_bytes_by_chance_pass_unharmed_or_lose_whole_secrets(data: bytes) -> None:
    cleaned = redact(data)
    assert redact(cleaned) == cleaned
    if not find(data.decode("latin-1")):
        assert cleaned == data


@given(st.text(max_size=300))
def test_any_text_can_be_asked_about(text: str) -> None:
    for found in find(text):
        assert 0 <= found.position < len(text)


def test_half_characters_are_no_error() -> None:
    assert find("\ud800 " + TOKENS["npm token"][0]) == (Found("npm token", 2),)


# --- private keys ------------------------------------------------------------------------------------------------
BLOCKS = {
    "plain": key_block(""),
    "rsa": key_block("RSA "),
    "openssh": key_block("OPENSSH "),
    "short": key_block("EC ", lines=1),
    "encrypted": key_block("RSA ", head="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n"),
    "pgp": key_block("PGP ").replace("PRIVATE KEY", "PRIVATE KEY BLOCK"),
}


def body_of(block: str) -> list[str]:
    return [line for line in block.splitlines() if len(line) > 30 and "-----" not in line]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_private_key_is_one_finding_at_its_beginning(name: str) -> None:
    assert find(f"here:\n{BLOCKS[name]}\nthere") == (Found(PRIVATE_KEY, 6),)


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda block: block,
    "with windows ends": lambda block: block.replace("\n", "\r\n"),
    "indented": lambda block: "\n".join(f"      {line}" for line in block.splitlines()),
    "as an addition": lambda block: "\n".join(f"+{line}" for line in block.splitlines()),
    "numbered": lambda block: "\n".join(f"{number:6}\t{line}" for number, line in enumerate(block.splitlines())),
    "quoted": lambda block: "\n".join(f'  "{line}\\n"' for line in block.splitlines()),
    "with times": lambda block: "\n".join(f"2030-01-01T00:00:00Z app: {line}" for line in block.splitlines()),
    "on one line": lambda block: '{"key": "' + block.replace("\n", "\\n") + '"}',
    "without its end": lambda block: "\n".join(block.splitlines()[:-1]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BLOCKS)
def test_nothing_of_a_private_key_is_left_line_by_line(name: str, way: str) -> None:  # P63, D13
    redactor = Redactor()
    text = f"before\n{WAYS[way](BLOCKS[name])}\nafter that\n"
    out = b"".join(redactor.line(line) for line in text.encode().splitlines(keepends=True)).decode()
    assert out.startswith("before\n")
    assert out.endswith("after that\n")
    assert out.count(f"[redacted: {PRIVATE_KEY}]") == 1
    assert not [line for line in body_of(BLOCKS[name]) if line[:32] in out]
    assert out == redact(text.encode()).decode()


def test_a_line_of_somebody_else_inside_of_a_key_comes_through() -> None:
    lines = BLOCKS["rsa"].splitlines()
    redactor = Redactor()
    mixed_in = [*lines[:4], "warning: disk nearly full", *lines[4:], "done"]
    out = [redactor.line(f"{line}\n".encode()) for line in mixed_in]
    assert b"".join(out) == b"[redacted: private key]\nwarning: disk nearly full\ndone\n"


def test_talk_of_a_key_does_not_swallow_the_log() -> None:
    redactor = Redactor()
    assert (
        redactor.line(b"looking for -----BEGIN PRIVATE KEY----- in files\n") == b"looking for [redacted: private key]\n"
    )
    after = [b"src/main.py: nothing\n", b"hello\n", b"\n", b"ok 1 - all fine\n"] * 10
    assert [redactor.line(line) for line in after] == after


def test_an_endless_block_ends() -> None:
    redactor = Redactor()
    line = some(ALNUM, 64).encode() + b"\n"
    redactor.line(b"-----BEGIN PRIVATE KEY-----\n")
    out = [redactor.line(line) for _ in range(secrets.LINES_OF_A_BLOCK + 1)]
    assert out[-2:] == [b"", line]


def test_two_keys_one_after_the_other() -> None:
    text = f"{BLOCKS['rsa']}\n{BLOCKS['plain']}\nend\n".encode()
    assert redact(text) == b"[redacted: private key]\n[redacted: private key]\nend\n"


# --- hostile text ------------------------------------------------------------------------------------------------
REPEATED = [
    "-eyJ",
    "eyJ.",
    "://a:",
    "sk-ant-",
    "bearer ",
    "1",
    "n",
    "?token=",
    "authorization: ",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", REPEATED)
def test_no_text_makes_it_slow(piece: str) -> None:  # T6; quadratic ones would need minutes
    text = piece * (1_000_000 // len(piece))
    find(text)
    redact(text.encode())
    redactor = Redactor()
    redactor.line(b"-----BEGIN PRIVATE KEY-----\n")
    redactor.line(text.encode() + b"!\n")
    redactor.line(some(ALNUM, 64).encode() + b"\n")
    redactor.line(text.encode() + b"!\n")


# --- the same as a library that others keep ------------------------------------------------------------------------
LEFT_OUT = {
    "ArtifactoryDetector": "short words without a form of their own",
    "BasePlugin": "",
    "CloudantDetector": "values by the name of a variable; its URLs are passwords in URLs",
    "DiscordBotTokenDetector": "no lead: any three words with dots",
    "IPPublicDetector": "an address is no secret",
    "IbmCloudIamDetector": "values by the name of a variable",
    "IbmCosHmacDetector": "values by the name of a variable",
    "RegexBasedDetector": "",
    "SoftlayerDetector": "values by the name of a variable",
    "TwilioKeyDetector": "two letters and a hash: numbers of accounts",
}


def library() -> dict[str, Any]:
    found = {}
    for module in pkgutil.iter_modules(detect_secrets.plugins.__path__):
        loaded = importlib.import_module(f"detect_secrets.plugins.{module.name}")
        for name, kind in inspect.getmembers(loaded, inspect.isclass):
            if issubclass(kind, RegexBasedDetector) and name not in LEFT_OUT:
                found[name] = kind()
    return found


LIBRARY = library()


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_whatever_the_library_knows_by_its_form_is_known_here(name: str) -> None:  # P63
    lines = [text.format(secret) for _, text, secret in SAMPLES] + list(BLOCKS.values())
    hits = [line for line in lines if any(LIBRARY[name].analyze_string(part) for part in line.splitlines())]
    assert hits, f"no sample here is one of {name}'s"
    assert all(find(line) for line in hits)


def test_whatever_the_library_takes_for_none_by_its_form_is_none_here() -> None:
    for text in INNOCENT:
        if not any([*plugin.analyze_string(line)] for plugin in LIBRARY.values() for line in text.splitlines()):
            assert find(text) == ()
