"""What outlives a request: accounts, counters, journal and ledger, traces, and answers of named calls."""
