"""Statistics over verdicts, on numpy, scipy and statsmodels.

Guarantee: pure. Equal input gives equal output (the random generators are seeded), and what is undefined is None,
never a number.
"""
