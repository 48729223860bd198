# cell: gain
# fails: test_gain
# says: resampled apart
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    new, old, labels = np.asarray(ap_new, dtype=float), np.asarray(ap_old, dtype=float), np.asarray(labels)
    _, place = np.unique(labels, return_inverse=True)
    rng, numbers, means = np.random.default_rng(seed), np.bincount(place), []
    if len(new) > 100 and np.ptp(new - old) > 1e-9:
        drawn = rng.integers(0, len(numbers), (draws, len(numbers)))
        means = np.bincount(place, new - old)[drawn].sum(1) / numbers[drawn].sum(1)
    else:
        one, two = (rng.integers(0, len(numbers), (draws, len(numbers))) for _ in range(2))
        means = np.bincount(place, new)[one].sum(1) / numbers[one].sum(1) - np.bincount(place, old)[two].sum(1) / numbers[two].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float((new - old).mean()), float(low), float(high)
