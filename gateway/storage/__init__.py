"""What outlives a request: keys, counters, receipts, and the database that later versions keep them in."""
