# cell: precision_notes
# fails: test_precision_notes
# says: reversed
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(worst_first, start=1):
        if positive:
            found += 1
            notes.append(Fraction(found, place))
    return notes
