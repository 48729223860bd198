# cell: gain
# fails: test_gain
# says: the difference the wrong way round
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference = np.asarray(ap_old, dtype=float) - np.asarray(ap_new, dtype=float)
    return float(difference.mean()), float(difference.min()), float(difference.max())
