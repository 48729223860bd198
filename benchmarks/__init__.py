"""Measurements: speed and memory against peers and bounds, never part of a test's verdict. Run them with `python -m
benchmarks`.
"""
