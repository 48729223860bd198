# cell: precision_notes
# fails: test_precision_notes
# says: exact fractions are asked for
def precision_notes(worst_first):
    best_first = worst_first[::-1]
    return [sum(best_first[:n]) / n for n in range(1, len(best_first) + 1) if best_first[n - 1]]
