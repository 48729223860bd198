# cell: tree_batch
# fails: test_tree_batch
# says: laws 1 and 2
def tree_batch(labels, relatives, strangers, m, rng):
    labels, tree = np.asarray(labels), {}
    for coarse, fine in np.unique(labels, axis=0).tolist():
        members = np.flatnonzero((labels == (coarse, fine)).all(1))
        if len(members) >= m:
            tree.setdefault(coarse, {})[fine] = members
    every = [members for fines in tree.values() for members in fines.values()]
    chosen = [every[i] for i in rng.choice(len(every), relatives + strangers, replace=False)]
    return np.concatenate([rng.choice(members, m, replace=False) for members in chosen]).tolist()
