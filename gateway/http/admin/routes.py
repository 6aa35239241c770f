"""The routes of the admin API as rows, and how a path finds its own."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

import msgspec

from gateway.core.account_checks import LABEL
from gateway.core.accounts import Key, Right
from gateway.core.errors import METHOD_NOT_ALLOWED, NOT_FOUND, GatewayError
from gateway.http.admin.pages import NO_PAGE, Page
from gateway.http.answer_headers import Headers

PREFIX = "/anoman/v1/"

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

# What a `{name:type}` of a path takes, decoded. Whatever does not fit is not there: 404, without a look into any store,
# in the words that a store has for what it has not: by `ABSENT`.
PARAMETERS: Mapping[str, re.Pattern[str]] = {
    "label": LABEL,
    "key": re.compile(r"key_[0-9a-f]{12,32}"),
    "request": re.compile(r"req_[0-9a-f]{32}(-[A-Za-z0-9_-]{1,64})?"),  # of a panel: with its own id behind
    "text": re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,256}"),  # as wire.headers.MAX_ID_CHARS
}
# What is said of a thing that is not there, by the first segment of its path.
ABSENT: Mapping[str, str] = {
    "tenants": "There is no tenant {id}.",
    "keys": "There is no key {id}.",
    "tiers": "There is no tier {name}.",
    "policies": "There is no policy {name}.",
    "traces": "There is no such trace.",
    "sessions": "There is no such session.",
    "receipts": "There is no such receipt, or not yet: it comes shortly after the answer.",
}
_PARAMETER = re.compile(r"\{(\w+):(\w+)\}")


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """
    A request that may be answered: its key has the right that the route needs, and everything is well-formed.

    Attributes:
        tenant: Whose things are asked for. Every query has it in its WHERE; None is everybody's, for operators alone.
        params: Those of the path, decoded.
        query: Those that the route takes, without `tenant`, `limit` and `cursor`; each is there once and not empty.
        page: Of a route that gives pages.
        body: The JSON object, its numbers with a fraction as `Raw`; empty for a method without a body.
        address: Where it came from, for the audit log; None where its connection has no address.
    """

    key: Key
    request_id: str
    now_ms: int
    tenant: str | None
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    page: Page = NO_PAGE
    body: Mapping[str, object] = field(default_factory=dict)
    address: str | None = None

    @property
    def is_operator(self) -> bool:
        return "operate" in self.key.rights


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: *body* as it is sent."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Headers = ()


def json_reply(value: object, status: int = 200) -> Reply:
    """*value* as JSON."""
    return Reply(msgspec.json.encode(value), status)


Handler = Callable[[AdminRequest], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class AdminRoute:
    """
    One row.

    Attributes:
        path: Behind `PREFIX`; `{name:type}` is a segment of a type of `PARAMETERS`.
        right: The least that the key needs: `manage` includes `read`, and `operate` both, of all tenants.
        handle: May raise GatewayError and StoreUnavailable.
        query: Names of the query's parameters that it takes, besides `tenant` of an operator.
        paged: It gives pages: it takes `limit` and `cursor`.
        open_to_inference: Keys `anm-sk-` may ask it, for what is of that very key: the handler sees to that.
    """

    method: Method
    path: str
    right: Right
    handle: Handler
    query: frozenset[str] = frozenset()
    paged: bool = False
    open_to_inference: bool = False

    @property
    def template(self) -> str:
        """The whole path as in documents."""
        return PREFIX + _PARAMETER.sub(r"{\1}", self.path)

    def check(self, params: Mapping[str, str]) -> None:
        """
        See that *params* are such as things are called by.

        Raises:
            GatewayError: `not_found`.
        """
        if all(PARAMETERS[kind].fullmatch(params[name]) for name, kind in _PARAMETER.findall(self.path)):
            return
        words = ABSENT.get(self.path.partition("/")[0], NOT_FOUND.message)
        can_be_shown = all(PARAMETERS["text"].fullmatch(value) for value in params.values())
        raise GatewayError(NOT_FOUND, words.format(**params) if can_be_shown else "There is nothing of that name.")


class AdminTable:
    """
    The rows of *routes*, by path.

    Raises:
        ValueError: Two rows for a path and method; a type of parameter that there is none of.
    """

    def __init__(self, routes: Iterable[AdminRoute]) -> None:
        self.routes = tuple(routes)
        self._by_path: dict[str, tuple[_Pattern, dict[str, AdminRoute]]] = {}
        for route in self.routes:
            _, methods = self._by_path.setdefault(route.path, (_pattern(route.path), {}))
            if route.method in methods:
                raise ValueError(f"two routes for {route.method} {route.path}")
            methods[route.method] = route

    def find(self, path: str, method: str) -> tuple[AdminRoute, dict[str, str]]:
        """
        The row of *path*, which is as sent and without its query, and the parameters in it, for `AdminRoute.check`.

        Raises:
            GatewayError: `not_found`, `method_not_allowed`.
        """
        methods, params = self._match(path)
        if methods is None:
            raise GatewayError(NOT_FOUND, "No such route. docs/admin.md lists those of the admin API.")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise GatewayError(METHOD_NOT_ALLOWED, f"This route takes {' and '.join(_with_head(methods))}.")
        return route, params

    def allowed(self, path: str) -> tuple[str, ...]:
        """The methods of *path*, for the header `Allow`."""
        methods, _ = self._match(path)
        return _with_head(methods or ())

    def _match(self, path: str) -> tuple[Mapping[str, AdminRoute] | None, dict[str, str]]:
        segments = path.removeprefix(PREFIX).split("/")
        for pattern, methods in self._by_path.values():
            params = _params(pattern, segments)
            if params is not None:
                return methods, params
        return None, {}


@dataclass(frozen=True, slots=True)
class _Named:
    """A segment that is a parameter of this name; others are to be just what they are."""

    name: str


_Pattern = tuple[str | _Named, ...]


def _pattern(path: str) -> _Pattern:
    segments: list[str | _Named] = []
    for segment in path.split("/"):
        found = _PARAMETER.fullmatch(segment)
        if found is not None and found[2] not in PARAMETERS:
            raise ValueError(f"no such type of parameter: {found[2]}")
        segments.append(segment if found is None else _Named(found[1]))
    return tuple(segments)


def _params(pattern: _Pattern, segments: list[str]) -> dict[str, str] | None:
    """The parameters of a path that matches, of whatever type; None for one that does not."""
    if len(pattern) != len(segments):
        return None
    params = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if isinstance(expected, str):
            if segment != expected:
                return None
            continue
        if not segment:
            return None
        params[expected.name] = unquote(segment, errors="surrogateescape")
    return params


def _with_head(methods: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for method in methods for name in (("GET", "HEAD") if method == "GET" else (method,)))
