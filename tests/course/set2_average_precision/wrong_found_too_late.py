# cell: precision_notes
# fails: test_precision_notes
# says: THE FIND ITSELF NOT COUNTED
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(reversed(worst_first), start=1):
        if positive:
            found += 1
            notes.append(Fraction(found - 1, place))
    return notes
