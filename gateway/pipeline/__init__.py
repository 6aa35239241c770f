"""The awaiting middle: one exchange from admission to receipt. It knows ports, not libraries."""
