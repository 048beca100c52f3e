"""Blots secrets out of text and of structured data that is to be logged, stored, shown or sent.

Two ways to know one: by its shape (tokens of ours, keys of providers, passwords in URLs, headers,
``name=value`` with a telling name; also in dictionaries, bytes, JSON within JSON and
percent-encoded text), and by the name of the field that holds it. What foreign code says
(`redact_foreign`) is also searched for the secrets of this process's environment.
"""

import logging
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

HIDDEN: Final = "[redacted]"
_BLOTTED: Final = (HIDDEN, HIDDEN[:-1])
_LONGEST_TEXT: Final = 3072
_MARGIN: Final = 512
"""Characters left out on both sides of a cut, where half a secret may not be recognised."""
_SHORT: Final = 256
_DEEPEST: Final = 6
_LONGEST: Final = 4096

_QUOTE: Final = r"(?:\\{0,8}[\"']|%22|%27)"
_IS: Final = rf"{_QUOTE}?(?:\s|%20){{0,8}}(?:[:=]|%3A|%3D)(?:\s|%20|\+){{0,8}}"
# What is in quotes may have blanks; a quote that was escaped ends at one that was escaped.
_VALUE: Final = (
    r"(?:b?\"(?:[^\"\\]|\\.)*+\"|b?'(?:[^'\\]|\\.)*+'|b?\\{1,8}[\"'](?:(?!\\{1,8}[\"']).)*+|"
    r"%2[27](?:(?!%2[27])[^\s&])*+|b?[\"']?[^\s\"',;&}\])\\]+)"
)


def _begin(*words: str, at: str = r"(?<!\w.)") -> str:
    """Return a pattern of words, by default only where a word begins, in capitals or not.

    It begins with the set of their first letters, which is found quickly, and looks back from
    there. Of several words each has a fixed width.
    """
    letters = "".join(sorted({word[0] for word in words}))
    also = r"\u017f" if "s" in letters else ""  # as re.IGNORECASE has it
    ends = "|".join(f"{word[1:]}(?<={word})" for word in words) if words[1:] else words[0][1:]
    return f"(?-i:[{letters}{letters.upper()}{also}]){at}(?:{ends})"


def _begin_exactly(*words: str) -> str:
    """Return a pattern of words of fixed widths where a word begins, written like this."""
    letters = "".join(sorted({word[0] for word in words}))
    ends = "|".join(f"{word[1:]}(?<={word})" for word in words)
    return rf"[{letters}](?<!\w.)(?:{ends})"


def _after(end: str, *names: str) -> str:
    """Return a pattern that looks back from the end of a name; those in one text are as long."""
    return "|".join(f"(?<=(?:{name}){between}{end})" for name in names for between in ("", "[_-]"))


_KEYS: Final = _after(
    *("key", "api", "auth", "access|secret|master", "private|signing|account"),
    *("encryption", "subscription"),
)
_TOKENS: Final = _after(
    *("token", "id", "bot", "auth|user|csrf", "access|bearer", "refresh|session"),
)
# Only the ends of names are searched for: to try all at each character takes ten times as long.
_NAMES: Final = (
    r"(?-i:[k\u212ats\u017fpcA-Z0-9_])(?:"
    rf"ey(?<=[eghinrst_-]key)(?:{_KEYS})(?:[_-]?id)?|"
    rf"oken(?<=[dfhnrst_-]token)(?:{_TOKENS})|"
    r"ecret(?<=secret)|ass(?<=pass)(?:wd|word|phrase)|redential(?<=credential)s?|"
    # Of the environment: only in capitals, for in small letters such names mean other things, too.
    r"(?-i:(?<=[A-Z0-9_])(?<!\w.)[A-Z0-9_]{0,63}_(?:TOKEN|KEY|SECRET|PASS|PWD)"
    r"(?:_[A-Z0-9_]{1,64})?+))"
)

# Keys of services that begin like nothing else; each with what may follow, how long it is, and
# what is in all of them, in small letters.
_SERVICES: Final = (
    (
        _begin_exactly("npm_", "nfp_", "ntn_", "fw_", "figd_", "jina_"),
        r"[A-Za-z0-9_-]{20,}",
        ("npm_", "nfp_", "ntn_", "fw_", "figd_", "jina_"),
    ),
    (
        _begin_exactly("pypi-AgE", "GOCSPX-", "AT[AC]TT3", "glptt-", "gl(?:rt|dt)-"),
        r"[\w=-]{16,}",
        ("pypi-age", "gocspx-", "tt3", "glptt-", "glrt-", "gldt-"),
    ),
    (_begin_exactly(r"SG\."), r"[\w-]{16,}+\.[\w-]{16,}+", ("sg.",)),
    (
        _begin_exactly(r"hvs\.", r"dp\.(?:pt|st|ct|sa)\.", "tskey-", "AGE-SECRET-KEY-1"),
        r"[\w-]{16,}",
        ("hvs.", "dp.", "tskey-", "age-secret-key-1"),
    ),
    (
        _begin_exactly(
            *("whsec_", "shp(?:at|ss|ca|pa)_", "do[opr]_v1_", "dckr_pat_", "sntry[su]_"),
            "rubygems_",
        ),
        r"[\w+/=-]{16,}",
        ("whsec_", "shp", "_v1_", "dckr_pat_", "sntry", "rubygems_"),
    ),
    (
        _begin_exactly("lin_api_", "lin_oauth_", "PMAK-", "sbp_", "sq0(?:atp|csp)-", "csk-"),
        r"[\w-]{16,}",
        ("lin_", "pmak-", "sbp_", "sq0", "csk-"),
    ),
    (_begin_exactly("dapi"), r"[0-9a-f]{32}", ("dapi",)),
    (
        r":AA(?:(?<=\b[0-9]{8}:AA)|(?<=\b[0-9]{9}:AA)|(?<=\b[0-9]{10}:AA))",
        r"[\w-]{30,}",
        (":aa",),
    ),
)

_BEFORE_AND_SECRET: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), signs)
    for pattern, signs in (
        # a header with its scheme, as text, in a dictionary, or in a pair of an ASGI scope
        (
            rf"({_begin('authorization', 'api-key', 'x-auth-token', 'cookie', at='')}"
            rf"(?:{_IS}|{_QUOTE}\s*+,\s*+)(?:b?{_QUOTE})?"
            r"(?:(?:bearer|basic|token)(?:\s|%20|\+)+)?)"
            r"(?:(?<=[\"'])[^\"'\\]+|[^\s\"',}\\]+)",
            ("authorization", "api-key", "x-auth-token", "cookie"),
        ),
        (rf"({_begin('cookie:', at='')}\s?)[^\r\n\"']+", ("cookie:",)),
        (rf"({_begin('bearer')}(?:\s|%20|\+)+)[\w.~+/=%-]{{8,}}", ("bearer",)),
        (rf"({_begin('mail_', at='')})[\w-]{{24,}}", ("mail_",)),
        (
            "("
            + _begin(
                *("sk", "pk", "rk", "xai", "gsk", "hf", "gh[oprsu]", "glpat", "lsv2", "tvly", "r8"),
                *("pplx", "nvapi", "xapp", "xox[a-z]"),
            )
            + r"[-_])[\w*-]{8,}",
            ("-", "_"),
        ),
        (rf"({_begin('ya29')}\.)[\w-]{{10,}}", ("ya29.",)),
        *((f"(?-i:({before}){secret})", signs) for before, secret, signs in _SERVICES),
        (
            rf"({_begin('github_pat_', 'aiza', 'akia', 'asia')})[\w-]{{10,}}",
            ("github_pat_", "aiza", "akia", "asia"),
        ),
        (rf"({_begin('eyj')})[\w-]{{8,}}+(\.[\w-]{{4,}}+(?:\.[\w-]*+)?)?", ("eyj",)),
        (rf"({_begin('https?://')}[^\s:/@]*:)[^\s/]*(?=@)", ("@",)),
        (rf"({_begin('https?://')})[^\s:/@]{{1,200}}(?=@)", ("@",)),
        (
            rf"({_NAMES}{_IS}){_VALUE}",
            ("key", "token", "secret", "pass", "credential", "_pwd"),
        ),
        (r"(;\s?pwd=)[^\s;\"']+", ("pwd=",)),
        (rf"((?-i:[\"'27])(?:(?<=[\"'])|(?<=%2.))token{_IS}){_VALUE}", ("token",)),
        (rf"({_begin('token=')}){_VALUE}", ("token=",)),
        (
            r"([?&](?=[xkscat])(?:x-(?:amz|goog)-)?"
            r"(?:key|sig|signature|code|auth|(?:security-)?token)=)[^\s&\"'<>]+",
            ("key=", "sig=", "signature=", "code=", "auth=", "token="),
        ),
        (
            r"(%(?:3F|26)(?:key|sig|signature|code|auth|token)%3D)(?:(?!%26)[^\s&\"'<>])+",
            ("%3d",),
        ),
        (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END|\Z)", ("private key-----",)),
    )
)
"""Patterns of what precedes a secret (the group) and the secret, each with parts in small letters
of which a text that it matches has one.

Each takes time in proportion to the length of the text: what a search has gone through without
success it does not go through again from the next character.
"""
_URLS: Final = tuple(
    (re.compile(between, re.IGNORECASE), re.compile(scheme, re.IGNORECASE), after)
    for between, scheme, after in (
        (
            r"://(?=[^\s:/@]*(:))",
            r"\b(?!https?:)[a-z][a-z0-9+.-]{0,20}:\Z",
            "@",
        ),
        (
            r"%3A%2F%2F(?=(?:(?!%3A|%40)[^\s:/@])*(%3A))",
            r"\b[a-z][a-z0-9+.-]{0,20}%3A\Z",
            "%40",
        ),
    )
)
"""The part between a URL's scheme and its user, with what precedes the password as the group; what
the scheme ends with there; and what follows the password, which may have that, too."""
_LONGEST_SCHEME: Final = 21
_LONGEST_PASSWORD: Final = 400
_PASSWORD: Final = re.compile(rf"\S{{0,{_LONGEST_PASSWORD}}}")

_HINTS: Final = (
    *("://", "%3a", "auth", "bearer", "cookie", "credential", "key", "pass", "pwd", "secret"),
    *("token", "sig", "code", "mail_", "eyj", "aiza", "akia", "asia", "sk-", "sk_", "rk-", "rk_"),
    *("pk-", "pk_", "xai-", "xai_", "hf-", "hf_", "gho", "ghp", "ghr", "ghs", "ghu", "pplx"),
    *("nvapi", "xox", "xapp", "github_", "glpat", "lsv2", "tvly", "r8-", "r8_", "ya29", "npm_"),
    *("nfp_", "ntn_", "fw_", "figd", "jina", "pypi-a", "gocspx", "tt3", "glptt", "glrt-", "gldt-"),
    *("sg.", "hvs.", "dp.", "whsec", "shp", "_v1_", "dckr", "sntry", "rubyg", "lin_", "pmak"),
    *("sbp_", "sq0", "dapi", ":aa"),
)
"""Parts of which each of the shapes has one, in lower case; most lines have none."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:apikey|authorization|cookie|credentials?|dsn|key|passphrase|passwd|password|secret|token)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_LOOKED_AT: Final = 4000
_WORD: Final = 500
_SHORTEST_SECRET: Final = 8
_SECRET_VARIABLE: Final = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|_PASS|_PWD|DSN|DATABASE_URL)$|BEARER_TOKEN"
)
_FOREIGN: Final = tuple(
    (re.compile(pattern), signs)
    for pattern, signs in (
        (
            rf"({_begin_exactly('sk', 'pk', 'rk', 'xai', 'gsk', 'hf', 'ghp', 'pplx', 'nvapi')}"
            r"[-_][\w*-]{4,}(?:\.[\w*-]+)*)",
            ("-", "_"),
        ),
        (r"://([^\s/@:]*:[^\s/]*)(?=@)", ("@",)),
        (r"://([^\s/@]+)(?=@)", ("@",)),
        # a user and a password; looked for only from where the word of both begins
        (
            r"(?<![^\s/@])(?=[^\s/@]++@)(?:[^\s/@:'\"]*+['\"]|:)*+"
            r"([^\s/@:'\"]++:[^\s/@]++)(?=@)",
            ("@",),
        ),
        (r"Bearer (?=([^\s'\",}]+))", ("Bearer ",)),
        (r"api_key=([^\s&'\",}]+)", ("api_key=",)),
        (r"\?key=([^\s&'\"]+)", ("?key=",)),
        # a command line, SQL, a setting, and addresses that are secrets themselves
        (
            r"--(?:password|passwd|token|api-key|secret)['\"]?,?[\s=]['\"]?([^\s'\",]+)",
            ("--pass", "--token", "--api-key", "--secret"),
        ),
        (r"(?i:password)\s{1,8}'([^']+)'", ("assword", "ASSWORD")),
        (r"[\"']pass[\"']:\s?[\"']([^\"']+)", ("pass",)),
        (r"hooks\.slack\.com/services/([^\s'\"]+)", ("hooks.slack.com",)),
        (r"/api/webhooks/([^\s'\"]+)", ("/api/webhooks/",)),
    )
)
"""Shapes that in texts of our own mean something else, such as ``role:id@swarm``.

The group is the secret; beside each is what such a text has in it.
"""


def logged(
    logger: logging.Logger,
    error: BaseException,
    text: str,
    *values: object,
    level: int = logging.ERROR,
    said: str = "",
) -> str:
    """Log an exception of foreign code with its traceback; return what others learn of it.

    That is its class, and a reference to the line in the log.

    Args:
        logger: The logger of the module that caught it.
        error: Any exception that MAIL did not raise on purpose.
        text: The message of the log, constant.
        values: The values in the message.
        level: The level of the line.
        said: The text for others in place of the class.
    """
    reference = secrets.token_hex(4)
    known = {"reference": reference}
    logger.log(level, text, *values, exc_info=error, extra=known, stacklevel=2)
    return f"{said or type(error).__name__} (see the log, reference {reference})"


def redact_foreign(text: str, known: Iterable[str] = (), most: int = _LOOKED_AT) -> str:
    """Return text of foreign code without what is, or looks like, a key, a token or a password.

    Args:
        text: Any text from outside.
        known: Values that must not appear, beside those of the environment.
        most: About how many characters are kept.
    """
    text = without({*_environment().values(), *known}, text)
    if len(text) > most:
        # Half a key at the end would not look like one, so the cut is between two words where
        # there are some.
        end = text.rfind(" ", most - _WORD, most)
        text = text[: end if end > 0 else most]
    text = redact(text)
    spans = sorted(
        found.span(1)
        for pattern, signs in _FOREIGN
        if any(map(text.__contains__, signs))
        for found in pattern.finditer(text)
    )
    pieces, done = [], 0
    for start, end in spans:
        if start >= done:
            pieces += [text[done:start], HIDDEN]
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def environment_secrets() -> frozenset[str]:
    """Return the values of environment variables that are secrets by their names.

    An address of a database is none of them: only the password in it is a secret.
    """
    addresses = ("DATABASE_URL", "DSN")
    return frozenset(
        value for name, value in _environment().items() if not name.endswith(addresses)
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}


def without(secret_values: Iterable[str], text: str) -> str:
    """Return the text without these values, unless they are too short to be secrets."""
    for secret in sorted(secret_values, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text


def redact(text: str) -> str:
    """Return the text with tokens, keys, headers and passwords of known shapes blotted out."""
    if not _suspicious(text):
        return text
    for between, scheme, after in _URLS:
        text = _without_passwords(text, between, scheme, after)
    # In small letters as the patterns see it, which take these for capitals.
    lower = text.replace("\u017f", "s").replace("\u0131", "i").replace("\u0130", "i").lower()
    for pattern, signs in _BEFORE_AND_SECRET:
        if any(map(lower.__contains__, signs)):
            text = pattern.sub(_blot if pattern.groups == 1 else _blot_web_token, text)
    return text


def harmless(values: Sequence[object]) -> bool:
    """Tell whether values are plain text and short, and no secret of a known shape is in them."""
    if {*map(type, values)} != {str}:
        return False
    whole = "\n".join(cast("Sequence[str]", values))
    return len(whole) <= _LONGEST and not _suspicious(whole)


def redact_long(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return a text for the log without secrets; of a longer one only its two ends.

    It is cut first: what others send costs no more than its first part.
    """
    if len(text) <= longest:
        return redact(text)
    half = longest // 2
    head, tail = redact(text[:half])[:-_MARGIN], redact(text[-half:])[_MARGIN:]
    return f"{head}… [{len(text) - longest + 2 * _MARGIN} characters] …{tail}"


def beginning(text: str) -> str:
    """Return a text of somebody's for a short line of the log: of a longer one the beginning."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= _SHORT:
        return text
    first = redact(data[: _SHORT + _MARGIN].decode("utf-8", "ignore"))
    if not first.isprintable():  # it would be escaped later, and long again
        first = first.encode("unicode_escape").decode()
    shown = first.encode("utf-8", "backslashreplace")[:_SHORT].decode("utf-8", "ignore")
    return f"{shown}… [{len(text)} characters]"


def redacted(value: Any, depth: int = 0) -> Any:
    """Return data for JSON, without secrets: of dictionaries also by the names of their fields.

    What JSON does not have becomes text; what is nested too deeply, too.
    """
    if value is None or isinstance(value, bool | int | str):
        return redact_long(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return _redacted_mapping(value, depth)
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        items = list(value)
        if len(items) == 2 and _names_secret(items[0]):  # a header as a pair
            return [redacted(items[0], depth + 1), HIDDEN]
        return [redacted(item, depth + 1) for item in items]
    return redact_long(_text(value))


def is_secret_name(name: str) -> bool:
    """Tell whether a field of this name holds a secret, whatever it looks like."""
    plain = _CAMEL.sub("_", name).replace("-", "_").lower()
    return _SECRET_NAME.search(plain) is not None


def _suspicious(text: str) -> bool:
    lower = text.lower()
    for hint in _HINTS:  # noqa: SIM110 - a generator takes twice as long
        if hint in lower:
            return True
    return False


def _redacted_mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    found = {}
    named = next((value[key] for key in ("name", "key") if key in value), None)
    hidden = _names_secret(named)
    for key, item in value.items():
        name = _text(key)
        secret = is_secret_name(name) and not (name == "key" and hidden)
        secret = secret or (hidden and name == "value")
        found[redact(name)] = HIDDEN if secret and item is not None else redacted(item, depth + 1)
    return found


def _names_secret(value: object) -> bool:
    return isinstance(value, str | bytes) and is_secret_name(_text(value))


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value[:_LONGEST]).decode("utf-8", "backslashreplace")
    return str(value)


def _without_passwords(
    text: str, between: re.Pattern[str], scheme: re.Pattern[str], after: str
) -> str:
    """Blot out what stands between a URL's user and the last ``after`` that can belong to it."""
    following = text.find(after)
    if following < 0:
        return text
    pieces, done = [], 0
    for found in between.finditer(text):
        start = found.end(1)
        if following < start:
            following = text.find(after, start)
            if following < 0:
                break
        if found.start() < done or following - start > _LONGEST_PASSWORD:
            continue
        end = text.rfind(after, start, _PASSWORD.match(text, start).end())  # type: ignore[union-attr]  # it always matches
        colon = found.start() + found.end(1) - found.start(1)
        if end >= 0 and scheme.search(text, max(0, found.start() - _LONGEST_SCHEME), colon):
            pieces += [text[done:start], HIDDEN]
            done = end
    return "".join([*pieces, text[done:]])


def _blot(match: re.Match[str]) -> str:
    before, whole = match[1], match[0]
    return whole if whole[len(before) :] in _BLOTTED else before + HIDDEN


def _blot_web_token(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else _blot(match)
