"""Attacks on the redaction: in how many disguises a secret may come, and what must stay."""

import json
import time

import pytest

from mail.redaction import HIDDEN, is_secret_name, redact, redact_foreign, redact_long, redacted

SECRET = "hunter2-Zq9"
TOKEN = "mail_eDvr3Wo7Za9cV7zEtfkS9XbiBBcCVRVKJAAeD7cY6P8"
ESCAPED = json.dumps(json.dumps({"api_key": f"two {SECRET}"}))

LONG = "AbCdEf0123456789GhIjKlMnOpQrStUvWxYz"
PREFIXES = (
    *("npm_", "nfp_", "ntn_", "fw_", "figd_", "jina_", "hf_", "pypi-AgEIcHlwaS5vcmc", "GOCSPX-"),
    *("ATATT3", "ATCTT3", "glpat-", "glptt-", "glrt-", "gldt-", "hvs.", "dp.pt.", "dp.st."),
    *("whsec_", "shpat_", "shpss_", "shpca_", "shppa_", "dop_v1_", "doo_v1_", "dor_v1_"),
    *("dckr_pat_", "sntrys_", "sntryu_", "rubygems_", "lin_api_", "lin_oauth_", "PMAK-", "sbp_"),
    *("sq0atp-", "sq0csp-", "csk-", "tskey-auth-", "AGE-SECRET-KEY-1"),
    *("xoxb-", "xoxe-", "xoxc-", "xoxp-", "123456789:AA"),
)

DISGUISES = [
    f"Authorization: Bearer {SECRET}",
    f"Proxy-Authorization: Basic {SECRET}",
    f"{{'authorization': 'Bearer {SECRET}'}}",
    f"[(b'authorization', b'Bearer {SECRET}'), (b'host', b'x')]",
    f"[(b'x-api-key', b'{SECRET}')]",
    f"b'GET / HTTP/1.1\\r\\nAuthorization: Bearer {SECRET}'",
    f"{{b'password': b'{SECRET}'}}",
    f"Cookie: theme=dark; session={SECRET}",
    f"the header bearer {SECRET} was bad",
    f"GET /x?a=1&token={SECRET}",
    f"swarm://connect?server=h&token={SECRET}",
    f"https://h/v1?key={SECRET}&b=2",
    f"https://h/?sig={SECRET}",
    f"url=%2Fx%3Ftoken%3D{SECRET}%26b",
    f"%7B%22password%22%3A%22{SECRET}%22%7D",
    f"Authorization%3A%20Bearer%20{SECRET}",
    f"postgresql%3A%2F%2Fme%3A{SECRET}%40db%3A5432%2Fx",
    f"postgresql://me:{SECRET}@db:5432/x",
    f"postgresql://me:a/b@{SECRET}@db:5432/x",
    f"redis://:{SECRET}@db:1/0",
    f"https://me:{SECRET}@h/",
    f"https://{SECRET}@h/x.git",
    f"host=db password={SECRET} dbname=x",
    f"password = '{SECRET} and more'",
    f"{{'password': 'a \"word\" {SECRET}'}}",
    f'{{"password": "a \\" {SECRET}"}}',
    ESCAPED,
    f"DB_PASSWORD={SECRET}",
    f"OPENAI_API_KEY: {SECRET}",
    f"GITHUB_TOKEN={SECRET}",
    f"{{'HF_TOKEN': '{SECRET}'}}",
    f"SWARM_AUTH_TOKEN_BETA={SECRET}",
    f"LITELLM_MASTER_KEY={SECRET}",
    f"DB_PASS={SECRET}",
    f"MYSQL_PWD={SECRET}",
    f"Driver=x;UID=sa;PWD={SECRET};Server=h",
    f"Ocp-Apim-Subscription-Key: {SECRET}",
    f"https://h/x?X-Amz-Expires=1&X-Amz-Signature={SECRET}&b=2",
    f"apiKey={SECRET}",
    f"client_secret={SECRET}",
    f"refresh_token: '{SECRET}'",
    f"{{'token': '{SECRET}'}}",
    f"token='{SECRET}'",
    f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\nabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", DISGUISES)
def test_a_secret_with_a_telling_name_or_place_is_blotted_out(text: str) -> None:
    shown = redact(f"before {text} after")
    assert SECRET not in shown
    assert HIDDEN in shown
    assert shown.startswith("before ")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (TOKEN, TOKEN[5:]),
        (f"/tasks/{TOKEN}/events", TOKEN[5:]),
        ("sk-ant-api03-AbCdEf012345", "AbCdEf012345"),
        ("gsk_AbCdEf0123456789", "AbCdEf0123456789"),
        ("ghu_AbCdEf0123456789", "AbCdEf0123456789"),
        ("ghr_AbCdEf0123456789", "AbCdEf0123456789"),
        ("glpat-AbCdEf0123456789", "AbCdEf0123456789"),
        ("lsv2_pt_AbCdEf0123456789", "AbCdEf0123456789"),
        ("tvly-dev-AbCdEf0123456789", "AbCdEf0123456789"),
        ("r8_AbCdEf0123456789", "AbCdEf0123456789"),
        ("xapp-1-AbCdEf0123456789", "AbCdEf0123456789"),
        ("ya29.AbCdEf0123456789", "AbCdEf0123456789"),
        ("AIzaSyA1234567890abcdef", "SyA1234567890abcdef"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
        *((f"{prefix}{LONG}", LONG) for prefix in PREFIXES),
        (f"SG.{LONG[:22]}.{LONG}", LONG),
        (f"dapi{'0123456789abcdef' * 2}", "0123456789abcdef"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "eyJzdWIiOiIxIn0"),
    ],
)
def test_a_secret_of_a_known_shape_is_blotted_out_anywhere(text: str, secret: str) -> None:
    assert secret not in redact(f"it was {text}, they said")


@pytest.mark.parametrize(
    "text",
    [
        "task user:alice@alpha at http://localhost:8000/task/a@b has max_tokens=9 mail_ready",
        "GET /tasks/9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d/events 200 12.1 ms",
        "input_tokens=12 output_tokens=9 total_tokens=21",
        "MAX_TOKENS=9 TOKENS: 4 KEY=a MONKEY=b PASS: 3 FAIL: 0",
        "OPENAI_API_KEY is not set; MAIL_TOKEN is",
        "unknown key 'sever'; did you mean 'server'?",
        "invalid API key",
        "no API key provided",
        "author: bob, keys: a, b",
        "expected: token at position 3",
        "open sqlite:////var/lib/mail.db",
        "npm_config_registry, npm_config_user_agent and npm_package_json are set",
        "pypi-attestations==0.0.27, hvs.py, SG.first.second, dapi, dp.st.x, lin_api_url",
        "at 12:34:56 task 123456789:AAB was begun",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


def test_data_is_redacted_by_names_by_shapes_and_where_it_is_split() -> None:
    data = {
        "headers": [["Authorization", SECRET], ("x-api-key", SECRET), ("accept", "text/html")],
        "pairs": [{"name": "Authorization", "value": SECRET}, {"key": "api_key", "value": SECRET}],
        "nested": {"dbPassword": SECRET, "access-token": SECRET, "n": 1, "none": None},
        "raw": f"Bearer {SECRET}".encode(),
        TOKEN: "a token as a name",
        "text": f"open postgresql://me:{SECRET}@db/x",
    }
    shown = redacted(data)
    text = json.dumps(shown)
    assert SECRET not in text
    assert TOKEN not in text
    assert shown["headers"][2] == ["accept", "text/html"]
    assert shown["nested"]["n"] == 1
    assert shown["nested"]["none"] is None


def test_what_json_does_not_have_becomes_text() -> None:
    loop: list[object] = []
    loop.append(loop)
    shown = redacted({"inf": float("inf"), "set": {1}, "loop": loop, "type": int, 5: 6})
    assert json.loads(json.dumps(shown, allow_nan=False))["inf"] == "inf"
    assert (shown["set"], shown["5"]) == ([1], 6)


@pytest.mark.parametrize(
    "name", ["token", "user_token", "apiKey", "x-api-key", "store_dsn", "apikey"]
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert not is_secret_name(f"{name}_count")


def test_passwords_of_several_urls_in_one_word_are_all_blotted_out() -> None:
    text = f"amqp://a:{'x' * 390},postgresql://me:{SECRET}@db,redis://:{SECRET}@cache"
    shown = redact(text)
    assert SECRET not in shown
    assert shown.endswith("@cache")


def test_a_web_token_behind_words_that_look_alike_is_blotted_out() -> None:
    shown = redact("eyJ-eyJabcdefgh-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln")
    assert "eyJzdWIiOiIxIn0" not in shown
    assert redact("eyJabcdefghijkl is no token") == "eyJabcdefghijkl is no token"


class CountedText(str):
    """A text that counts the characters which are cut out of it."""

    __slots__ = ("given",)

    def __new__(cls, text: str) -> "CountedText":
        made = super().__new__(cls, text)
        made.given = 0
        return made

    def __getitem__(self, key: object) -> str:
        part = super().__getitem__(key)  # type: ignore[index]
        self.given += len(part)
        return part

    def lower(self) -> str:
        raise AssertionError("the whole text was looked at")


def test_a_long_text_is_cut_before_it_is_redacted() -> None:
    text = CountedText(f"GET /{'a://:' * 100_000} 404")
    shown = redact_long(text)
    assert text.given <= 3072
    assert len(shown) < 3072
    assert shown.startswith("GET /a://:")
    assert shown.endswith("404")


def test_no_half_of_a_secret_is_left_at_a_cut() -> None:
    for shift in range(0, 700, 7):
        text = f"{'x' * (1536 - 300 + shift)}postgresql://me:{SECRET}@db {'y' * 3000}"
        assert SECRET[:8] not in redact_long(text)
        text = f"{'y' * 3000} postgresql://me:{SECRET}@db{'x' * (1536 - 300 + shift)}"
        assert SECRET[-8:] not in redact_long(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("me:pw@h and you:two:three@h", f"{HIDDEN}@h and {HIDDEN}@h"),
        ("a/me:pw@h me: pw@h me:@h", f"a/{HIDDEN}@h me: pw@h me:@h"),
        ('\'me:pw@h "a":b:pw@h', f'\'{HIDDEN}@h "a":{HIDDEN}@h'),
        ("https://me:pa@ss@h/a@b", f"https://{HIDDEN}@h/a@b"),
        ("https://key@h/a:b", f"https://{HIDDEN}@h/a:b"),
        ("hf_abcd.ef:pw@h", f"{HIDDEN}@h"),
        ("Bearer abc, Bearer Bearer d", f"Bearer {HIDDEN}, Bearer {HIDDEN} {HIDDEN}"),
        ("?key=ab api_key=cd,e", f"?key={HIDDEN} api_key={HIDDEN},e"),
        ("['curl', '--password', 'S1']", f"['curl', '--password', '{HIDDEN}']"),
        ("run --token=abc --api-key d", f"run --token={HIDDEN} --api-key {HIDDEN}"),
        ("CREATE ROLE app PASSWORD 'S 1';", f"CREATE ROLE app PASSWORD '{HIDDEN}';"),
        ('{"pass": "S1"}', f'{{"pass": "{HIDDEN}"}}'),
        ("https://hooks.slack.com/services/T/B/x", f"https://hooks.slack.com/services/{HIDDEN}"),
        ("https://discord.com/api/webhooks/1/x", f"https://discord.com/api/webhooks/{HIDDEN}"),
        ("use --token-stdin, or no password 12", "use --token-stdin, or no password 12"),
        ("role:id is no@mail and 12:30 a@b", "role:id is no@mail and 12:30 a@b"),
    ],
)
def test_shapes_of_secrets_in_texts_of_foreign_code(text: str, shown: str) -> None:
    assert redact_foreign(text) == shown


SIGNS = " key://@:=%3A%40"
"""Has a sign of many patterns, so that they are tried."""

FAMILIES = (
    *(
        "a",
        "a:",
        "a.",
        "a-",
        "a+-.1://",
        "a://:",
        "a://b:",
        "//",
        ":",
        "@",
        "a:b@",
        "://a:b",
        "=",
        "0",
    ),
    *("token=ab&", "token", "api_key=", "key", "A_KEY", "A_SECRET_A_", "__KEY", "user:pass"),
    *("https://a:b@", "https://a:", "http://", '"', "'", "\\", '\\"', 'password="', "password='\\"),
    *(
        "aGVsbG8+/",
        "QUJD",
        "0123456789",
        "authorization",
        "authorization:",
        'x-api-key"',
        "cookie: ",
    ),
    *(
        "bearer ",
        "bearer%20",
        "Bearer ",
        "mail_",
        "sk-",
        "ghp_a.",
        "eyJa.",
        "eyJ-",
        "SG.a",
        "?key=",
    ),
    *("%3A", "a%3A%2F%2F", "%22token", "%3Fkey%3D", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----"),
    *(" ", "\n", "é", "_", "&", "?", ";pwd=", "--token ", "--secret", "PASSWORD '", "password "),
    *("'pass':", "hooks.slack.com/services/", "/api/webhooks/"),
)


def _spent(text: str) -> float:
    """Return the processor time that a text takes, in seconds."""
    began = time.thread_time()
    redact_foreign(text, most=len(text))
    redact_long(text, len(text))
    return time.thread_time() - began


@pytest.mark.parametrize("signs", ["", SIGNS])
@pytest.mark.parametrize("family", FAMILIES)
def test_time_grows_with_the_length_of_a_text_and_not_with_its_square(
    family: str, signs: str
) -> None:
    short, long = (f"{family * (size // len(family))}{signs}" for size in (4_000, 32_000))
    _spent(short)
    for _ in range(5):  # another process may slow down one of the two
        first, second = min(_spent(short) for _ in range(3)), _spent(long)
        if second < 24 * max(first, 0.0005):
            return
    pytest.fail(f"{first:.4f} s, but for a text eight times as long {second:.4f} s")
