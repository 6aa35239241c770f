"""The languages spoken on the wire, one module each, and what they share."""
