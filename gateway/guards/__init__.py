"""What guards look for in texts: engines without a clock or any I/O, linear in what they read."""
