"""Blots secrets out of text and of structured data that is to be logged, stored, shown or sent.

Two ways to know one: by its shape (tokens of ours, keys of providers, passwords in URLs, headers,
``name=value`` with a telling name; also in dictionaries, bytes, JSON within JSON and
percent-encoded text), and by the name of the field that holds it. What foreign code says
(`redact_foreign`, `told_as`) is also searched for the secrets of this process's environment.
"""

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

__all__ = [
    "HIDDEN",
    "harmless",
    "is_secret_name",
    "new_reference",
    "redact",
    "redact_foreign",
    "redact_long",
    "redacted",
    "told_as",
]

HIDDEN: Final = "[redacted]"
_BLOTTED: Final = (HIDDEN, HIDDEN[:-1])
_LONGEST_TEXT: Final = 3072
_MARGIN: Final = 512
"""What is left out on both sides of a cut, where half a secret may not be recognised."""
_DEEPEST: Final = 6
_LONGEST: Final = 4096

_QUOTE: Final = r"(?:\\{0,8}[\"']|%22|%27)"
_IS: Final = rf"{_QUOTE}?(?:\s|%20){{0,8}}(?:[:=]|%3A|%3D)(?:\s|%20|\+){{0,8}}"
# What is in quotes may have blanks; a quote that was escaped ends at one that was escaped.
_VALUE: Final = (
    r"(?:b?\"(?:[^\"\\]|\\.)*+\"|b?'(?:[^'\\]|\\.)*+'|b?\\{1,8}[\"'](?:(?!\\{1,8}[\"']).)*+|"
    r"%2[27](?:(?!%2[27])[^\s&])*+|b?[\"']?[^\s\"',;&}\])\\]+)"
)
_HEADERS: Final = r"(?:proxy-)?authorization|x-api-key|api-key|x-auth-token|(?:set-)?cookie"
_NAMES: Final = (
    r"(?:api|access|auth|private|secret|signing|encryption|account|master|subscription)[_-]?key"
    r"(?:[_-]?id)?|"
    r"(?:access|auth|refresh|id|session|bearer|user|csrf|bot)[_-]?token|x-auth-token|"
    r"client[_-]?secret|passwd|password|passphrase|secret|credentials?"
)
# Of the environment: only in capitals, for in small letters such names mean other things, too.
_VARIABLES: Final = r"(?-i:\b[A-Z0-9_]{1,64}_(?:TOKEN|KEY|SECRET|PASS)(?:_[A-Z0-9_]{1,64})?+)"

# Keys of services that begin like nothing else; each with what may follow, and how long it is.
_SERVICES: Final = (
    (r"npm_|nfp_|ntn_|fw_|figd_|jina_", r"[A-Za-z0-9_-]{20,}"),
    (r"pypi-AgE|GOCSPX-|AT[AC]TT3|gl(?:ptt|rt|dt)-", r"[\w=-]{16,}"),
    (r"SG\.", r"[\w-]{16,}+\.[\w-]{16,}+"),
    (r"hvs\.|dp\.(?:pt|st|ct|sa)\.|tskey-|AGE-SECRET-KEY-1", r"[\w-]{16,}"),
    (r"whsec_|shp(?:at|ss|ca|pa)_|do[opr]_v1_|dckr_pat_|sntry[su]_|rubygems_", r"[\w+/=-]{16,}"),
    (r"lin_(?:api|oauth)_|PMAK-|sbp_|sq0(?:atp|csp)-|csk-", r"[\w-]{16,}"),
    (r"dapi", r"[0-9a-f]{32}"),
    (r"[0-9]{8,10}:AA", r"[\w-]{30,}"),
)

_BEFORE_AND_SECRET: Final = tuple(
    re.compile(pattern, flags | re.IGNORECASE)
    for pattern, flags in (
        # a header with its scheme, as text, in a dictionary, or in a pair of an ASGI scope
        (
            rf"((?:{_HEADERS})(?:{_IS}|{_QUOTE}\s*,\s*)(?:b?{_QUOTE})?"
            r"(?:(?:bearer|basic|token)(?:\s|%20|\+)+)?)"
            r"(?:(?<=[\"'])[^\"'\\]+|[^\s\"',}\\]+)",
            0,
        ),
        (r"((?:set-)?cookie:\s?)[^\r\n\"']+", 0),
        (r"\b(bearer(?:\s|%20|\+)+)[\w.~+/=%-]{8,}", 0),
        (r"(mail_)[\w-]{24,}", 0),
        (
            r"\b((?:sk|pk|rk|xai|gsk|hf|gh[oprsu]|glpat|lsv2|tvly|r8|pplx|nvapi|xapp|xox[a-z])"
            r"[-_])[\w*-]{8,}",
            0,
        ),
        (r"\b(ya29\.)[\w-]{10,}", 0),
        *((rf"\b(?-i:({before}){secret})", 0) for before, secret in _SERVICES),
        (r"\b(github_pat_|AIza|AKIA|ASIA)[\w-]{10,}", 0),
        (r"\b(eyJ)[\w-]{8,}+(\.[\w-]{4,}+(?:\.[\w-]*+)?)?", 0),
        (r"\b(https?://[^\s:/@]*:)[^\s/]*(?=@)", 0),
        (r"\b(https?://)[^\s:/@]{1,200}(?=@)", 0),
        (rf"((?:{_NAMES}|{_VARIABLES}){_IS}){_VALUE}", re.DOTALL),
        (rf"({_QUOTE}token{_IS}){_VALUE}", re.DOTALL),
        (rf"(\btoken=){_VALUE}", re.DOTALL),
        (
            r"([?&](?:x-(?:amz|goog)-)?(?:key|sig|signature|code|auth|(?:security-)?token)=)"
            r"[^\s&\"'<>]+",
            0,
        ),
        (r"(%(?:3F|26)(?:key|sig|signature|code|auth|token)%3D)(?:(?!%26)[^\s&\"'<>])+", 0),
        (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END|\Z)", re.DOTALL),
    )
)
_URLS: Final = (
    (re.compile(r"\b(?!https?:)[a-z][a-z0-9+.-]{0,20}://[^\s:/@]*:", re.IGNORECASE), "@"),
    (
        re.compile(r"\b[a-z][a-z0-9+.-]{0,20}%3A%2F%2F(?:(?!%3A|%40)[^\s:/@])*%3A", re.IGNORECASE),
        "%40",
    ),
)
"""What precedes a password in a URL, and what follows it; the password may have that, too."""
_PASSWORD: Final = re.compile(r"\S{0,400}")

_HINTS: Final = (
    *("://", "%3a", "auth", "bearer", "cookie", "credential", "key", "pass", "secret", "token"),
    *("sig", "code", "mail_", "eyj", "aiza", "akia", "asia", "sk-", "sk_", "rk-", "rk_", "pk-"),
    *(
        "pk_",
        "xai-",
        "xai_",
        "hf-",
        "hf_",
        "gho",
        "ghp",
        "ghr",
        "ghs",
        "ghu",
        "pplx",
        "nvapi",
        "xox",
        "xapp",
    ),
    *("github_", "glpat", "lsv2", "tvly", "r8-", "r8_", "ya29", "npm_", "nfp_", "ntn_", "fw_"),
    *("figd", "jina", "pypi-a", "gocspx", "tt3", "glptt", "glrt-", "gldt-", "sg.", "hvs.", "dp."),
    *("whsec", "shp", "_v1_", "dckr", "sntry", "rubyg", "lin_", "pmak", "sbp_", "sq0", "dapi"),
    ":aa",
)
"""What any of the shapes has in it, in lower case; most lines have none of it."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:apikey|authorization|cookie|credentials?|dsn|key|passphrase|passwd|password|secret|token)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_LOOKED_AT: Final = 4000
_WORD: Final = 500
_SHORTEST_SECRET: Final = 8
_SECRET_VARIABLE: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|DATABASE_URL)$|BEARER_TOKEN")
_FOREIGN: Final = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|pplx|nvapi)[-_][\w*-]{4,}(?:\.[\w*-]+)*|"
    r"(?<=://)[^\s/@:]*:[^\s/]*(?=@)|(?<=://)[^\s/@]+(?=@)|[^\s/@:'\"]++:[^\s/@]++(?=@)|"
    r"(?<=Bearer )[^\s'\",}]+|(?<=api_key=)[^\s&'\",}]+|(?<=\?key=)[^\s&'\"]+"
)
"""Shapes that in texts of our own mean something else, such as ``role:id@swarm``."""


def new_reference() -> str:
    """Return what names a line of the log in a text that leaves the process."""
    return secrets.token_hex(4)


def told_as(error: BaseException, reference: str) -> str:
    """Return what others learn of an exception of foreign code: its class, and where its text is.

    Args:
        error: Any exception that MAIL did not raise on purpose.
        reference: What its line in the log has as ``reference``, beside the traceback.
    """
    return f"{type(error).__name__} (see the log, reference {reference})"


def redact_foreign(text: str, known: Iterable[str] = (), most: int = _LOOKED_AT) -> str:
    """Return text of foreign code without what is, or looks like, a key, a token or a password.

    Args:
        text: Any text from outside.
        known: Values that must not appear, beside those of the environment.
        most: About how many characters are kept.
    """
    hidden = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    hidden.update(known)
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    if len(text) > most:
        # Some of the shapes take time that grows with the square of the length. Half a key at the
        # end would not look like one, so the cut is between two words where there are some.
        end = text.rfind(" ", most - _WORD, most)
        text = text[: end if end > 0 else most]
    return _FOREIGN.sub(HIDDEN, redact(text))


def redact(text: str) -> str:
    """Return the text with tokens, keys, headers and passwords of known shapes blotted out."""
    if not _suspicious(text):
        return text
    for before, after in _URLS:
        text = _without_passwords(text, before, after)
    for pattern in _BEFORE_AND_SECRET:
        text = pattern.sub(_blot, text)
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


def _without_passwords(text: str, before: re.Pattern[str], after: str) -> str:
    """Blot out what stands between a URL's user and the last ``after`` that can belong to it."""
    if after not in text:
        return text
    pieces, done = [], 0
    for found in before.finditer(text):
        start = found.end()
        end = text.rfind(after, start, _PASSWORD.match(text, start).end())  # type: ignore[union-attr]  # it always matches
        if found.start() >= done and end >= 0:
            pieces += [text[done:start], HIDDEN]
            done = end
    return "".join([*pieces, text[done:]])


def _blot(match: re.Match[str]) -> str:
    if match.re.groups > 1 and match[2] is None:
        return match[0]
    if match[0][len(match[1]) :] in _BLOTTED:  # it was redacted before
        return match[0]
    return f"{match[1]}{HIDDEN}"
