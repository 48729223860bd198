# cell: two_pairs
# fails: test_two_pairs
# says: value 3
def two_pairs(tau):
    return (0.0, 5 * tau), (0.0, 0.12 * tau)
