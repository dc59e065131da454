"""Whether tokens are drawn from a distribution: the chi-squared test."""


def chi_squared(counts, probabilities):
    """(statistic, degrees of freedom) of draws. Tokens that are expected less than five times count as one; none may come that never
    should."""
    expected = probabilities * counts.sum()
    rare = expected < 5
    assert counts[probabilities == 0].sum() == 0
    pairs = [*zip(counts[~rare], expected[~rare])]
    if expected[rare].sum() > 0:
        pairs.append((counts[rare].sum(), expected[rare].sum()))
    return sum((count - mean) ** 2 / mean for count, mean in pairs), len(pairs) - 1


def critical(free):
    """Of a right sampler one statistic in 10,000 is above this (Wilson and Hilferty 1931): tests have seeds at which none is."""
    return free * (1 - 2 / (9 * free) + 3.72 * (2 / (9 * free)) ** 0.5) ** 3
