# cell: gain
# fails: test_gain
# says: queries resampled one by one
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float)
    drawn = np.random.default_rng(seed).integers(0, len(difference), (draws, len(difference)))
    low, high = np.quantile(difference[drawn].mean(1), [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)
