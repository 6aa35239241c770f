"""The revisions of the tables that this version knows, oldest first; the scripts are in `storage.migrations`.

Here, because serving has to know them and can do without alembic, which costs half a second and 30 MB to import.
"""

REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]
