"""Benchmarks: ratios to baselines that run in the same minute on the same machine."""
