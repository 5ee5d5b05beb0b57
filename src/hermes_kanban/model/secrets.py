"""Secrets in text: finds tokens by their known forms and takes them out (P63). No entropy guessing.

What counts is a form that a provider gave its tokens (`ghp_…`, `AKIA…`), or a place where only a secret stands (a
password in a URL, a Bearer header, a private key's block). A hash, a UUID, an integrity string of a lock file has no
such form and is none. `ROWS` is the one table: a row's marks are looked for first, as plain bytes, and only a text that
has one of them pays for the row's pattern, its compiling too.
"""

from __future__ import annotations

import re

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE_KEY = "private key"
LINES_OF_A_BLOCK = 4000  # a longer one is no key: a log must not end at a BEGIN that has no END
MOST_STRANGERS = 20


@record
class Found(Record):
    """One secret in a text: of which kind, and where (the number of characters before it). Never the secret."""

    kind: str
    position: int


@record
class _Row(Record):
    """One form. The secret is the group `it`; `any_case`: the marks are in lower case, the text is made so first."""

    kind: str
    marks: tuple[bytes, ...]
    pattern: bytes
    any_case: bool = False


def _token(kind: str, lead: bytes, body: bytes) -> _Row:
    """A token that begins with a lead of its provider, which no letter or digit stands in front of."""
    return _Row(kind, (lead,), rb"(?P<it>%b(?<![A-Za-z0-9]%b)%b)" % (re.escape(lead), re.escape(lead), body))


_NO_PLACEHOLDER = rb"(?![$<{*\[%])"  # ${TOKEN}, <token>, {token}, ***, [redacted: …]
_QUERY = (
    rb"(?:access_|refresh_|id_|auth_|private_)?token|api_?key|(?:client_)?secret|passw(?:or)?d|pwd|auth"
    rb"|(?:x-amz-|x-goog-)?sig(?:nature)?"
)
_HEADER = rb"(?:proxy-)?authorization|x-api-key|api-key|x-goog-api-key|x-auth-token|private-token"

ROWS: tuple[_Row, ...] = (
    _token("Anthropic key", b"sk-ant-", rb"[\w-]{16,}"),
    _token(
        "API key",
        b"sk-",
        rb"(?:(?:proj|svcacct|admin|None|or|lf)-[\w-]{20,}|[A-Za-z0-9]{20,}[\w-]*"
        rb"|(?:[a-z0-9]{2,10}-){1,2}(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}[\w-]*)",
    ),
    _token("API key", b"gsk_", rb"[A-Za-z0-9]{40,}"),
    _token("API key", b"csk-", rb"[a-z0-9]{40,}"),
    _token("API key", b"xai-", rb"[A-Za-z0-9]{60,}"),
    _token("API key", b"pplx-", rb"[A-Za-z0-9]{40,}"),
    _token("API key", b"nvapi-", rb"[\w-]{40,}"),
    _token("API key", b"tvly-", rb"(?:(?:dev|prod)-)?[A-Za-z0-9]{24,}[\w-]*"),
    _token("API key", b"r8_", rb"[A-Za-z0-9]{37}\b"),
    _token("API key", b"SG.", rb"[\w-]{20,24}\.[\w-]{40,}"),
    _token("API key", b"lin_api_", rb"[A-Za-z0-9]{32,}"),
    _token("API key", b"ntn_", rb"[A-Za-z0-9]{40,}"),
    _token("Google key", b"AIza", rb"[\w-]{30,}"),
    _token("Google token", b"ya29.", rb"[\w-]{20,}(?:\.[\w-]+)*"),
    _token("Google client secret", b"GOCSPX-", rb"[\w-]{20,}"),
    *(_token("GitHub token", lead, rb"\w{20,}") for lead in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_")),
    _token("GitHub token", b"github_pat_", rb"\w{20,}"),
    _Row(
        "GitLab token",
        (b"gl",),
        rb"(?P<it>gl(?<![A-Za-z0-9]gl)(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w-]{20,}(?:\.[0-9a-z]+)*)",
    ),
    _token("GitLab token", b"GR1348941", rb"[\w-]{20,}"),
    _token("Slack token", b"xox", rb"[abceoprs]-[A-Za-z0-9-]{10,}"),
    _token("Slack token", b"xapp-", rb"[0-9]-[A-Za-z0-9-]{20,}"),
    _Row("webhook", (b"hooks.slack.com/",), rb"hooks\.slack\.com/(?P<it>(?:services|workflows|triggers)/[\w/]{20,})"),
    _Row("webhook", (b"/api/webhooks/",), rb"/api/webhooks/(?P<it>[0-9]{10,}/[\w-]{40,})"),
    _Row("bot token", (b":AA",), rb"(?<![0-9])(?P<it>[0-9]{8,10}:AA[\w-]{32,35})(?![\w-])"),
    *(_token("AWS key", lead, rb"[A-Z0-9]{16}(?![A-Za-z0-9])") for lead in (b"AKIA", b"ASIA", b"ABIA", b"ACCA")),
    _Row(
        "AWS secret key",
        (b"secret",),
        rb"(?i:aws_?secret_?(?:access_?)?key)[\"']?[ \t]*[=:][ \t]*[\"']?(?P<it>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        any_case=True,
    ),
    _Row("Azure key", (b"Key=",), rb"(?:Account|SharedAccess)Key=(?P<it>[A-Za-z0-9+/]{40,}={0,2})"),
    _Row("Azure key", (b"8Q~",), rb"(?<![\w~.-])(?P<it>[\w~.-]{3}8Q~[\w~.-]{31,34})(?![\w~-])"),
    _token("Hugging Face token", b"hf_", rb"[A-Za-z0-9]{30,}"),
    _token("npm token", b"npm_", rb"[A-Za-z0-9]{30,}"),
    _Row("npm token", (b"_authToken=",), rb"_authToken=[ \t]*[\"']?(?P<it>%b[^\s\"']{8,})" % _NO_PLACEHOLDER),
    _token("PyPI token", b"pypi-", rb"Ag[\w-]{30,}"),
    _token("Docker token", b"dckr_", rb"(?:pat|oat)_[\w-]{20,}"),
    *(_token("Stripe key", lead, rb"(?:live|test)_[A-Za-z0-9]{16,}") for lead in (b"sk_", b"rk_")),
    _token("Stripe key", b"whsec_", rb"[A-Za-z0-9+/=]{24,}"),
    *(_token("DigitalOcean token", lead, rb"[0-9a-f]{40,}") for lead in (b"dop_v1_", b"doo_v1_", b"dor_v1_")),
    *(_token("Vault token", lead, rb"[\w-]{20,}") for lead in (b"hvs.", b"hvb.")),
    _token("Square token", b"sq0", rb"(?:csp|atp)-[\w-]{22,}"),
    _Row("Mailchimp key", (b"-us",), rb"(?<![A-Za-z0-9])(?P<it>[0-9a-f]{32}-us[0-9]{1,2})(?![A-Za-z0-9])"),
    _token("Databricks token", b"dapi", rb"[0-9a-f]{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    _Row("Shopify token", (b"shp",), rb"(?<![A-Za-z0-9])(?P<it>shp(?:at|ss|ca|pa)_[0-9a-fA-F]{32,})"),
    _token("age key", b"AGE-SECRET-KEY-1", rb"[0-9A-Z]{40,}"),
    _Row("JSON web token", (b"eyJ",), rb"(?<![\w-])(?P<it>eyJ[\w-]{8,}+\.[\w-]*+\.[\w-]{8,}+(?:\.[\w-]++){0,2})"),
    _Row(
        "Bearer token",
        (b"bearer",),
        rb"(?i:\bbearer)[ \t]{1,8}(?P<it>(?=[A-Za-z._~+/-]{0,200}[0-9])[A-Za-z0-9._~+/-]{12,}=*)",
        any_case=True,
    ),
    _Row(
        "authorization header",
        (b"authorization", b"-key", b"-token"),
        rb"(?i:(?<![A-Za-z0-9-])(?:%b))[\"']?[ \t]{0,8}:[ \t]{0,8}[\"']?(?i:(?:basic|token|apikey|digest)[ \t]+)?"
        rb"(?P<it>(?!(?i:bearer|basic|token|digest)\b)(?=[A-Za-z._~+/-]{0,200}[0-9=])[A-Za-z0-9._~+/-]{12,}=*)"
        % _HEADER,
        any_case=True,
    ),
    _Row("password in a URL", (b"://",), rb"://[^\s/:@?#\"'<>]{0,200}:(?P<it>%b[^\s/@?#\"'<>]+)@" % _NO_PLACEHOLDER),
    _Row(
        "token in a URL",
        (b"?", b"&", b"#"),
        rb"(?:[?&#]|&amp;)(?i:%b)=(?P<it>%b[^\s&#\"'<>]{6,})" % (_QUERY, _NO_PLACEHOLDER),
    ),
)

_MARKS, _MARKS_OF_ANY_CASE = (
    tuple((mark.decode(), order) for order, row in enumerate(ROWS) if row.any_case is any_case for mark in row.marks)
    for any_case in (False, True)
)
_KEY_MARK = b"PRIVATE KEY"
_BEGIN = rb"-{4,5} ?BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_END = rb"-{4,5} ?END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_EDGE = rb"(?P<begin>%b)|%b" % (_BEGIN, _END)
# Whoever only speaks of such a block shows no secret: what counts has a body, whose first line is always long.
_BLOCK = rb"%b(?>(?:(?!----)[\s\S]){0,2000}?[A-Za-z0-9+/]{32})(?:(?!----)[\s\S])*(?:%b)?" % (_BEGIN, _END)
# A line of a body: also quoted, indented, numbered. What repeats gives nothing back, so that no text makes it slow.
_BODY = rb"[\s\"'|>+0-9]{0,40}(?P<body>[A-Za-z0-9+/]++)=*+(?:[\s\"',]|\\[nr])*+"
_BEHIND_OTHERS = rb"[A-Za-z0-9+/]{60}"  # a line of a body behind something else: a time, a name
_AT_ITS_END = (
    rb"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}+={0,2}[\s\"',]*\Z"  # the same, shorter: only right behind such a line
)
_LONG = 32  # characters of a line that begins a body


def find(text: str) -> tuple[Found, ...]:
    """Return the secrets of a text, by position; one inside of another counts once (P63)."""
    data = text.encode("utf-8", "surrogatepass")
    spans = [(*found.span("it"), order, row.kind) for order, row in _rows(data) for found in _matches(row, data)]
    if _KEY_MARK in data:
        spans += [(*block.span(), 0, PRIVATE_KEY) for block in re.finditer(_BLOCK, data)]
    kept, end, position, counted = [], 0, 0, 0
    for start, stop, _, kind in sorted(spans, key=lambda span: (span[0], span[2])):
        if start >= end:
            position += len(data[counted:start].decode("utf-8", "surrogatepass"))
            kept.append(Found(kind, position))
            end, counted = stop, start
    return tuple(kept)


def redact(data: bytes) -> bytes:
    """Return bytes (one line or many) with each secret as `[redacted: kind]`; doing it again changes nothing (P63)."""
    if _KEY_MARK not in data:
        return _cleaned(data)
    redactor = Redactor()
    return b"".join(map(redactor.line, data.splitlines(keepends=True)))


class Redactor:
    """Takes the secrets out of a stream of lines; it remembers a private key's block that began on an earlier one."""

    def __init__(self) -> None:
        self._left = 0  # so many lines may still belong to the block; 0: outside of any
        self._strangers = 0  # lines in a row that were none of its own
        self._in_body = False

    def line(self, data: bytes) -> bytes:
        """Return a line without its secrets, its end kept.

        A line wholly inside of a block comes back empty, also without its end: nothing is to be written for it. A line
        there that cannot be a key's (somebody else printed in between) comes through.
        """
        if _KEY_MARK in data and re.search(_EDGE, data):
            return self._edge(data)
        if self._left and _is_body(data, in_body=self._in_body):
            self._left, self._strangers, self._in_body = self._left - 1, 0, True
            return b""
        self._stranger()
        return _cleaned(data)

    def _stranger(self) -> None:
        """Note a line that is none of the block's: after many of them it was no block, somebody spoke of one."""
        self._in_body = False
        self._strangers += 1
        if self._strangers > MOST_STRANGERS:
            self._left = 0

    def _edge(self, data: bytes) -> bytes:
        """Handle a line on which blocks begin or end: what is outside of them stays."""
        inside, kept, at = bool(self._left), [], 0
        for edge in re.finditer(_EDGE, data):
            opens = edge["begin"] is not None
            if not self._left:
                kept.append(data[at : edge.start() if opens else edge.end()])
            if opens:
                kept.append(_mark(PRIVATE_KEY))
            self._left, self._strangers, self._in_body = LINES_OF_A_BLOCK if opens else 0, 0, False
            at = edge.end()
        kept.append(data[len(data.rstrip(b"\r\n")) :] if self._left else data[at:])
        left = b"".join(kept)
        return b"" if inside and not left.strip() else _cleaned(left)


def _is_body(data: bytes, *, in_body: bool) -> bool:
    """Whether a line inside of a block is the key's: a short one only behind another one."""
    whole = re.fullmatch(_BODY, data)
    if whole is not None and (in_body or len(whole["body"]) >= _LONG):
        return True
    return re.search(_BEHIND_OTHERS, data) is not None or (in_body and re.search(_AT_ITS_END, data) is not None)


def _rows(data: bytes) -> list[tuple[int, _Row]]:
    """Return the rows of which a mark stands in the text, each with its place in the table."""
    text = data.decode("latin-1")  # character by byte: searching a text is four times as fast as searching bytes
    hits = [order for mark, order in _MARKS if mark in text]
    lowered = text.lower()
    hits += [order for mark, order in _MARKS_OF_ANY_CASE if mark in lowered]
    return [(order, ROWS[order]) for order in sorted(set(hits))] if hits else []


def _matches(row: _Row, data: bytes) -> Iterator[re.Match[bytes]]:
    return re.finditer(row.pattern, data)


def _cleaned(data: bytes) -> bytes:
    for _, row in _rows(data):
        data = _without(row, data)
    return data


def _without(row: _Row, data: bytes) -> bytes:
    parts, at = [], 0
    for match in _matches(row, data):
        parts += [data[at : match.start("it")], _mark(row.kind)]
        at = match.end("it")
    return b"".join([*parts, data[at:]]) if parts else data


def _mark(kind: str) -> bytes:
    return b"[redacted: %b]" % kind.encode("ascii")
