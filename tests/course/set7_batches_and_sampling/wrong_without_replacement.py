# cell: expected_ap
# fails: test_expected_ap
# says: draws without replacement
def expected_ap(n, k, b):
    draws = [x for x in range(min(k, b) + 1) if b - x <= n - k]
    return sum(math.comb(k, x) * math.comb(n - k, b - x) / math.comb(n, b) / (1 + x) for x in draws)
