# cell: precision_notes
# fails: test_precision_notes
# says: PRECISION AT EVERY PLACE
def precision_notes(worst_first):
    best_first = worst_first[::-1]
    return [Fraction(sum(best_first[:n]), n) for n in range(1, len(best_first) + 1)]
