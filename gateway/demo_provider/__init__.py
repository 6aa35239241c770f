"""The built-in provider of `gateway demo`: a process of its own that plays a vendor on loopback.

It speaks both dialects, so that everything can be tried without an account. It shares no code with the gateway,
because it stands for somebody else's service.
"""
