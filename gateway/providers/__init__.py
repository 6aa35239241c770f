"""Vendors: what is particular to each is data here, and nowhere else."""
