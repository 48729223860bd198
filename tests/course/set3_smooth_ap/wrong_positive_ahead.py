# cell: two_pairs
# fails: test_two_pairs
# says: THE POSITIVE AHEAD
def two_pairs(tau):
    return (19 * tau, 0.0), (0.12 * tau, 0.0)
