"""Real clients as black boxes: the SDKs people use, against the gateway as a process."""
