"""The subcommands of `python -m gateway` that look after what is kept."""
