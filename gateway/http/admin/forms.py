"""What bodies of requests about accounts may hold, and what is wrong with one in the words of its fields."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, structs

from gateway.core.accounts import BadTerms, BeyondRights, Budget, Period, Residency, Right, Scope, WhenBlind
from gateway.core.errors import CONFLICT, INVALID_REQUEST, NOT_FOUND, RIGHT_DENIED, ErrorKind, GatewayError
from gateway.core.money import parse_nano
from gateway.core.records import Actor, NotThere, Taken
from gateway.http.admin.routes import AdminRequest, Handler, Reply

MAX_OVERLAP_S = 30 * 86_400  # a month: whoever needs longer has not rotated
_OUTER = frozenset(
    {"tier", "rights", "policy", "name", "expires_ms", "tenant"}  # everything else that terms complain of is a limit
)


class BudgetForm(Struct, forbid_unknown_fields=True):
    """`limit_usd`: a plain decimal, as text."""

    scope: Scope
    period: Period
    limit_usd: str


class NewTenant(Struct, forbid_unknown_fields=True):
    """`name` is the id where it is left out."""

    id: str
    tier: str
    name: str | None = None
    budgets: tuple[BudgetForm, ...] = ()
    policy: str | None = None


class TenantChange(Struct, forbid_unknown_fields=True):
    """What is left out stays."""

    name: str | UnsetType = UNSET
    tier: str | UnsetType = UNSET
    budgets: tuple[BudgetForm, ...] | UnsetType = UNSET
    is_disabled: bool | UnsetType = UNSET
    policy: str | UnsetType | None = UNSET


class KeyFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """What of a key may be set and changed; what is left out is as in `KeyDraft`, or stays."""

    name: str | UnsetType = UNSET
    tier: str | UnsetType | None = UNSET
    limits: dict[str, Any] | UnsetType = UNSET
    models: tuple[str, ...] | UnsetType | None = UNSET
    region_preference: Residency | UnsetType = UNSET
    prefer_batch: bool | UnsetType = UNSET
    budgets: tuple[BudgetForm, ...] | UnsetType = UNSET
    policy: str | UnsetType | None = UNSET
    when_blind: WhenBlind | UnsetType = UNSET
    log_bodies: bool | UnsetType = UNSET
    expires_ms: int | UnsetType | None = UNSET


class NewKey(KeyFields, forbid_unknown_fields=True, kw_only=True):
    """`tenant` is the caller's own where it is left out."""

    tenant: str | UnsetType = UNSET
    rights: tuple[Right, ...] = ("inference",)


class Rotation(Struct, forbid_unknown_fields=True):
    """For how long the old secret is still taken."""

    overlap_s: int = 0


class Revocation(Struct, forbid_unknown_fields=True):
    """`now`: calls under way are cut as well."""

    now: bool = False


class TierForm(Struct, forbid_unknown_fields=True):
    """As [tiers.NAME] in the file."""

    limits: dict[str, Any]


class PolicyForm(Struct, forbid_unknown_fields=True):
    """As [policies.NAME] in the file."""

    rules: dict[str, Any]


def given(form: Struct, scopes: tuple[Scope, ...] = ()) -> dict[str, Any]:
    """
    The fields of *form* that were given, as records have them.

    Args:
        scopes: Those of the budgets that it may have.

    Raises:
        GatewayError: A budget or a limit makes no sense.
    """
    fields = {name: value for name, value in structs.asdict(form).items() if value is not UNSET}
    if "budgets" in fields:
        fields["budgets"] = tuple(_budget(place, budget, scopes) for place, budget in enumerate(fields["budgets"]))
    place = _fraction_in(fields.get("limits"), "limits")
    if place is not None:
        raise _wrong(place, "is not a whole number")
    if "rules" in fields:
        fields["rules"] = numbers(fields["rules"])
    return fields


def numbers(value: Any) -> Any:
    """*value* with the numbers themselves where they have a fraction; none of a body is beyond what they can be."""
    if isinstance(value, dict):
        return {name: numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [numbers(member) for member in value]
    return float(bytes(value)) if isinstance(value, Raw) else value


def _fraction_in(value: object, place: str) -> str | None:
    """The place of a number with a fraction in *value*, which stands at *place*; None where there is none."""
    if isinstance(value, Raw):
        return place
    members: list[tuple[str, object]] = []
    if isinstance(value, dict):
        members = [(f"{place}.{name}", member) for name, member in value.items()]
    elif isinstance(value, list):
        members = [(f"{place}[{number}]", member) for number, member in enumerate(value)]
    return next((found for at, member in members if (found := _fraction_in(member, at)) is not None), None)


def _budget(place: int, form: BudgetForm, scopes: tuple[Scope, ...]) -> Budget:
    if form.scope not in scopes:
        raise _wrong(f"budgets[{place}].scope", f"is not one of {', '.join(scopes)}")
    try:
        return Budget(form.scope, form.period, parse_nano(form.limit_usd))
    except ValueError as exc:
        raise _wrong(f"budgets[{place}].limit_usd", str(exc)) from None


def _wrong(param: str, problem: str, kind: ErrorKind = INVALID_REQUEST) -> GatewayError:
    shown = param if param.isascii() and param.isprintable() and len(param) <= 128 else None
    return GatewayError(kind, f"{shown or 'A field'}: {problem}.", param=shown)


def actor_of(asked: AdminRequest) -> Actor:
    """Who changes something."""
    return Actor(asked.key.id, None if asked.is_operator else asked.key.tenant, asked.address)


def told(handle: Handler, limits: str = "limits.") -> Handler:
    """*handle* with what the books refuse told as an error of the API; *limits* stands before the name of a limit."""

    async def handled(asked: AdminRequest) -> Reply:
        try:
            return await handle(asked)
        except NotThere as exc:
            raise GatewayError(NOT_FOUND, str(exc)) from None
        except Taken as exc:
            raise GatewayError(CONFLICT, str(exc)) from None
        except BadTerms as exc:
            field, problem = exc.problems[0]
            is_outer = field.partition("[")[0] in (*_OUTER, "models", "budgets")
            kind = RIGHT_DENIED if isinstance(exc, BeyondRights) else INVALID_REQUEST
            raise _wrong(field if is_outer else f"{limits}{field}", problem, kind) from None

    return handled
