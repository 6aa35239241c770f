"""The admin API, /anoman/v1: a table of routes, and what is the same for all of them."""
