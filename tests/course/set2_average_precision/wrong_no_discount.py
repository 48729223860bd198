# cell: discounted_ap
# fails: test_discounted_ap
# says: NO DISCOUNT
def discounted_ap(row, gamma):
    places = [place for place, positive in enumerate(row, start=1) if positive]
    weights = [gamma**0 for n, place in enumerate(places)]
    return sum(w * Fraction(n, place) for n, (w, place) in enumerate(zip(weights, places), start=1)) / sum(weights)
