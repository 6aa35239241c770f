"""What the guard `credentials` looks for, and what makes it sure: the table of `docs/guardrails-credentials.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """
    A kind of credential.

    Attributes:
        what: What it is, with the prefixes that it has.
        proof: What is looked at besides those.
    """

    what: str
    proof: str


KINDS: Mapping[str, Kind] = {
    "gateway_key": Kind("key of this gateway: `anm-sk-`, `anm-ak-`", "length, checksum"),
    "provider_key": Kind(
        "key of a provider of models: `sk-`, `sk-ant-`, `sk-proj-`, `sk-svcacct-`, `sk-or-v1-`, `gsk_`, `xai-`",
        "length, chance",
    ),
    "aws_key": Kind("AWS access key id: `AKIA`, `ASIA`", "length, alphabet, chance"),
    "aws_secret": Kind("AWS secret access key", "its name in front, length, alphabet, chance"),
    "github_token": Kind("GitHub: `ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_`, `github_pat_`", "length, chance; checksum"),
    "gitlab_token": Kind("GitLab: `glpat-`, `gldt-`, `glrt-`, `glptt-`, `glcbt-`, `gloat-`", "length, chance"),
    "slack_token": Kind("Slack: `xoxb-`, `xoxp-` and the like, `xapp-`", "length, chance"),
    "stripe_key": Kind("Stripe, live: `sk_live_`, `rk_live_`, `whsec_`", "length, chance"),
    "google_key": Kind("Google API key: `AIza`", "length, chance"),
    "sendgrid_key": Kind("SendGrid: `SG.`", "lengths of its two parts, chance"),
    "twilio_key": Kind("Twilio API key: `SK`", "length, hexadecimal, chance"),
    "npm_token": Kind("npm: `npm_`", "length, chance; checksum"),
    "pypi_token": Kind("PyPI: `pypi-AgE`", "length, chance"),
    "huggingface_token": Kind("Hugging Face: `hf_`", "length, a dozen different letters"),
    "telegram_token": Kind("Telegram bot: digits, `:AA`", "lengths, chance"),
    "jwt": Kind("JSON web token: `eyJ`", "a header that says how it is signed"),
    "private_key": Kind("private key in PEM: `-----BEGIN ... PRIVATE KEY-----`", "the beginning of a key behind it"),
    "url_password": Kind("password in a URL: `postgresql://name:password@host`", "no example's"),
    "bearer_token": Kind("what stands behind `Bearer` and `Basic`", "length, chance"),
    "password": Kind("value of what is called a password", "a digit or sign in it, no word, date or program"),
    "secret": Kind("value of what is called a secret, an API key, a token", "16 characters, chance"),
}
