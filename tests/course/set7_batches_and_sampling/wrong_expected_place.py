# cell: expected_ap
# fails: test_expected_ap
# says: the AP of the expected place
def expected_ap(n, k, b):
    return 1 / (1 + b * k / n)
