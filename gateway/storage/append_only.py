"""What keeps rows of the audit log as they were written, also from who has the gateway's own way to the database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import DDL, Table, event

_WORDS = "rows of the audit log are only ever added"
# By dialect. SQLite knows no triggers for a whole statement, nor TRUNCATE.
STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "sqlite": tuple([
        f"CREATE TRIGGER audit_keeps_{verb.lower()} BEFORE {verb} ON audit BEGIN SELECT RAISE(ABORT, '{_WORDS}'); END"
        for verb in ("UPDATE", "DELETE")
    ]),
    "postgresql": (
        "CREATE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_WORDS}'; END $$",
        "CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_keeps()",
    ),
}  # fmt: skip


def keep_rows(audit: Table) -> None:
    """Have the triggers made with the table, wherever it is made from its description."""
    for dialect, statements in STATEMENTS.items():
        for statement in statements:
            made = DDL(statement).execute_if(dialect=dialect)  # type: ignore[no-untyped-call]  # it has no types
            event.listen(audit, "after_create", made)
