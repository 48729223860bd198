# cell: gain
# fails: test_gain
# says: want an interval near
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference, labels = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float), np.asarray(labels)
    _, place = np.unique(labels, return_inverse=True)
    sums, numbers = np.bincount(place, difference), np.bincount(place)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    resampled = [sums[np.unique(row)].sum() / numbers[np.unique(row)].sum() for row in drawn]
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)
