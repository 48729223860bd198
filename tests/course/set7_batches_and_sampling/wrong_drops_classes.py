# cell: epoch
# fails: test_epoch
# says: the epoch drops classes
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes > 1])
    batches = [usable[i:i + classes] for i in range(0, len(usable) - classes + 1, classes)]

    def images(name):
        members = np.flatnonzero(labels == name)
        if len(members) >= m:
            return rng.choice(members, m, replace=False)
        return np.concatenate([members, rng.choice(members, m - len(members))])
    return [np.concatenate([images(name) for name in batch]).tolist() for batch in batches]
