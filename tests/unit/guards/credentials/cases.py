"""What the guard `credentials` has to find, and what it has to leave alone. No key here was ever issued.

They are put together when this is read, so that nobody who looks for leaks takes this file for one.
"""

from __future__ import annotations

import zlib

from gateway.core.credentials import make_secret

_R = "9fK2mQ7vXcR4tB8nLwZ1pHsD6yJ0aGeU3iVo5SxTuNkMqPbEdWz8hCjYgF2lArXv7Z"  # drawn by hand
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = "abQWErxyUIopASdmGHjkLZucVBnmQwKrTy"
_HEX = "0a9f8e7d6c5b4a39281706f5e4d3c2b1"


def _with_checksum(prefix: str) -> str:
    number, digits = zlib.crc32(_R[:30].encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _DIGITS[digit] + digits
    return prefix + _R[:30] + digits


GATEWAY = make_secret("anm-sk", bytes(range(32)))
ADMIN = make_secret("anm-ak", bytes(range(32, 64)))
PROVIDER = "sk-" + "proj-" + _R[:40]
GITHUB = _with_checksum("ghp" + "_")
JWT_HEAD = "eyJhbGciOiJIUzI1NiIs" + "InR5cCI6IkpXVCJ9"
JWT = f"{JWT_HEAD}.eyJzdWIiOiI4Mjk0NjE3MyJ9.{_R[:43]}"
_B64 = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MbzYLdZ7ZvVy7F7V"
_BEGIN, _FINISH = "-----BEGIN ", "-----END "


def pem(kind: str, line: str = "\n", body: str = _B64) -> str:
    """A private key as it stands in a file, with *line* between its lines."""
    return line.join([f"{_BEGIN}{kind}PRIVATE KEY-----", body, body, "q83d==", f"{_FINISH}{kind}PRIVATE KEY-----"])


KEYS: dict[str, tuple[str, ...]] = {
    "gateway_key": (GATEWAY, ADMIN),
    "provider_key": (
        PROVIDER,
        "sk-" + _R[:48],
        "sk-" + _HEX,
        "sk-" + "ant-api03-" + _R + _R[:20] + "-_AA",
        "sk-" + "svcacct-" + _R,
        "sk-" + "or-v1-" + _HEX + _HEX,
        "gsk" + "_" + _R[:52],
        "xai" + "-" + _R + _R[:14],
    ),
    "aws_key": ("AKIA" + "Q3EGRIZJ5K7N2LPW", "ASIA" + "Y4M7TQ2XWVB6KD3R"),
    "github_token": (GITHUB, "gho" + "_" + _R[:36], "github" + "_pat_" + _R[:22] + "_" + _R[:59]),
    "gitlab_token": ("glpat" + "-" + _R[:20], "glptt" + "-" + _HEX),
    "slack_token": (
        "xoxb" + "-829461738201-8294617382011-" + _R[:24],
        "xoxp" + "-829461738201-829461738202-829461738203-" + _HEX,
        "xapp" + "-1-A08QWERZK2M-8294617382011-" + _HEX,
    ),
    "stripe_key": ("sk" + "_live_" + _R[:24], "rk" + "_live_" + _R, "whsec" + "_" + _R[:32]),
    "google_key": ("AIza" + "Sy" + _R[:33],),
    "sendgrid_key": ("SG" + "." + _R[:22] + "." + _R[20:63],),
    "twilio_key": ("SK" + _HEX,),
    "npm_token": (_with_checksum("npm" + "_"), "npm" + "_" + _R[:36]),
    "pypi_token": ("pypi" + "-AgEIcHlwaS5vcmc" + _R + _R,),
    "huggingface_token": ("hf" + "_" + _LETTERS,),
    "telegram_token": ("8294617382:AA" + _R[:33],),
    "jwt": (JWT,),
    "private_key": (
        pem(""),
        pem("RSA "),
        pem("EC ", "\r\n"),
        pem("OPENSSH "),
        pem("ENCRYPTED "),
        pem("RSA ", "\\n"),
        pem("RSA ", body=f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{_B64}"),
        f"{_BEGIN}PGP PRIVATE KEY BLOCK-----\n\n{_B64}\n=aBcD\n{_FINISH}PGP PRIVATE KEY BLOCK-----",
        f"{_BEGIN}PRIVATE KEY-----\n{_B64 * 20}\n{_FINISH}PRIVATE KEY-----",
    ),
}  # fmt: skip

# A text, and the kinds and pieces in it.
FOUND: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("postgresql://app:s3cr3tPw@db:5432/x", (("url_password", "s3cr3tPw"),)),
    ("redis://:Zk8-pq_2@10.0.0.1:6379", (("url_password", "Zk8-pq_2"),)),
    ("https://budi:rahas1a@intranet.co.id/", (("url_password", "rahas1a"),)),
    (f"Authorization: Bearer {_R[:40]}", (("bearer_token", _R[:40]),)),
    (f"curl -H 'authorization: bearer {_R[:40]}'", (("bearer_token", _R[:40]),)),
    ("Authorization: Basic YnVkaTpzYW50b3NvMTIz", (("bearer_token", "YnVkaTpzYW50b3NvMTIz"),)),
    (f"AWS_SECRET_ACCESS_KEY={_R[:20]}/+{_R[20:38]}", (("aws_secret", f"{_R[:20]}/+{_R[20:38]}"),)),
    (f'"secretAccessKey": "{_R[:40]}"', (("aws_secret", _R[:40]),)),
    ("password = 'hunter2!'", (("password", "hunter2!"),)),
    ('{"password":"Kucing-123"}', (("password", "Kucing-123"),)),
    ("DB_PASSWORD=Kucing123&x=1", (("password", "Kucing123"),)),
    ("PGPASSWORD=Kucing123 psql", (("password", "Kucing123"),)),
    ("dbPassword: P@ssw0rd!", (("password", "P@ssw0rd!"),)),
    ("password saya adalah Kucing123.", (("password", "Kucing123"),)),
    ("the password is Kucing123, thanks", (("password", "Kucing123"),)),
    ("kata sandi: 12345678", (("password", "12345678"),)),
    ("sandinya: kucing#garong", (("password", "kucing#garong"),)),
    (f'api_key="{_R[:32]}"', (("secret", _R[:32]),)),
    (f"X-Api-Key: {_HEX}", (("secret", _HEX),)),
    (f"clientSecret={_R[:32]}", (("secret", _R[:32]),)),
    (f"access_token: {_R[:40]}", (("secret", _R[:40]),)),
    # the more exact kind is told, where two fit
    (f"password={PROVIDER}", (("provider_key", PROVIDER),)),
    (f"Authorization: Bearer {JWT}", (("jwt", JWT),)),
    (f"api_key = '{GATEWAY}'", (("gateway_key", GATEWAY),)),
    (f"{PROVIDER} {GITHUB}\n{JWT}", (("provider_key", PROVIDER), ("github_token", GITHUB), ("jwt", JWT))),
    # in disguise
    (f"{PROVIDER[:12]}\u200b{PROVIDER[12:]}", (("provider_key", f"{PROVIDER[:12]}\u200b{PROVIDER[12:]}"),)),
    ("ｐassword＝Kucing123", (("password", "Kucing123"),)),
    # cut off: what is there is found
    (pem("")[:113], (("private_key", pem("")[:113]),)),
    (JWT_HEAD, (("jwt", JWT_HEAD),)),
)  # fmt: skip

# What misses by one thing, and what only looks like a key.
BENIGN = (
    GATEWAY[:-1] + ("0" if GATEWAY[-1] != "0" else "1"),  # checksum
    GATEWAY[:-1],
    "sk-" + "x" * 40,
    "sk-" + "proj-your-api-key-here-please-1",
    "sk-" + "1234567890abcdef1234567890abcdef",
    "sk-" + _R[:19],
    "sk-...abcd, sk-ant-..., sk-***",
    "task-" + _R[:40],
    "sk-learn-is-a-library-for-machine-learning",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AKIA" + "Q3EGRIZJ5K7N2LP",
    "ghp_" + "x" * 36,
    "ghp_" + _R[:35],
    "glpat-xxxxxxxxxxxxxxxxxxxx",
    "xoxb-your-bot-token-goes-right-here",
    "sk_test_" + _R[:24],
    "sk_live_...",
    "AIza" + _R[:34],
    "SKU0a9f8e7d, SK" + _HEX[:31],
    "hf_" + "a" * 34,
    "hf_hub_download(repo_id, filename)",
    "eyJ0ZXN0IjoiZGF0YSJ9LmJsYWJsYQ",  # base64 of JSON that is no header
    f"{_BEGIN}PUBLIC KEY-----\n{_B64}\n{_FINISH}PUBLIC KEY-----",
    f"{_BEGIN}CERTIFICATE-----\n{_B64}\n{_FINISH}CERTIFICATE-----",
    f"{_BEGIN}PRIVATE KEY-----\n...\n{_FINISH}PRIVATE KEY-----",
    f"a file that has `{_BEGIN}RSA PRIVATE KEY-----` as its first line",
    "postgresql://user:password@localhost/db, redis://localhost:6379, postgres://app:${DB_PASSWORD}@db",
    "redis://[[username]:[password]]@localhost:6379/0, https://foo:bar@bar.com",
    "https://example.com:8080/a@b, git@github.com:org/repo.git, http://host:80/x?y=a:b@c",
    "Authorization: Bearer $TOKEN, Bearer <token>, bearer token authentication, Bearer YOUR_API_KEY_HERE",
    "Basic authentication-is-simple, basic understanding_of_everything",
    "password = get_password(), password=os.environ['X'], password: str | None = None, password = config.db.password",
    "password: string;\nPassword: Enter your password\nthe password is case-sensitive, is required. is base64-encoded",
    "password=$PASSWORD password={password} password=%s password='********' password=\"\"",
    "password: rahasia, sandi: Morse, kata sandi: minimal 8 karakter, pwd: /home/budi1/x",
    "max_tokens: 100000, token: 4096, tokens = 1234567890123456, num_tokens=20240312120000",
    "token = tokenizer.next_token(text_1), secret = load_secret('a'), api_key: process.env.API_KEY",
    "API_KEY=OPENAI_API_KEY_2_PRODUCTION, secret: kubernetes.io/service-account-token",
    "passed: 12345678, compass: N45E30, bypass=true1x, surpass: 123456",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "550e8400-e29b-41d4-a716-446655440000 d41d8cd98f00b204e9800998ecf8427e",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8, etag W/\"0a9f8e7d6c5b4a39\"",
    "id=chatcmpl-9fK2mQ7vXcR4tB8nLwZ1pHsD6yJ0a, req_011CSHoEeqs5C35K2UUqR7Fy, toolu_01A09q90qw90lq917835lq9",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "Simpan kunci API di variabel lingkungan, jangan di kode. Ganti kata sandi setiap 90 hari.",
    "[PASSWORD_1] password=[PASSWORD_2] \"token\": \"[SECRET_3]\" Bearer [BEARER_TOKEN_1]",
    "Rotate the secret, revoke the token, and never commit a private key.",
)  # fmt: skip
