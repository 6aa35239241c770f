"""The journal: what keeps the records of `core.journal` until the database has what they come to."""
