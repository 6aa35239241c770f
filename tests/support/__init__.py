"""The test kit: a scripted provider, the gateway as a subprocess, and a raw client."""

import pytest

pytest.register_assert_rewrite("tests.support.gateway", "tests.support.client", "tests.support.provider")
