# cell: lowest_ap
# fails: test_lowest_ap
# says: THE FIRST PLACE LOST
def lowest_ap(positives, gallery):
    return sum(Fraction(k, gallery - positives + k) for k in range(1, positives + 1)) / positives
