# cell: lowest_ap
# fails: test_lowest_ap
# says: THE HITS NOT COUNTED
def lowest_ap(positives, gallery):
    return (1 + sum(Fraction(1, gallery - positives + k) for k in range(2, positives + 1))) / positives
