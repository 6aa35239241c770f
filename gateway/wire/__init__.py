"""Bytes and frames: everything that is read from or written to a wire before a dialect gives it meaning."""
