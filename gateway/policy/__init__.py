"""What is allowed and what is tried next: routing, retries, breakers, rate windows. Pure; the clock is handed in."""
