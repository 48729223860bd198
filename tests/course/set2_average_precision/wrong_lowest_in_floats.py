# cell: lowest_ap
# fails: test_lowest_ap
# says: an exact fraction is asked for
def lowest_ap(positives, gallery):
    return (1 + sum(k / (gallery - positives + k) for k in range(2, positives + 1))) / positives
