# cell: tree_batch
# fails: test_tree_batch
# says: every possible home must be drawn equally often
def tree_batch(labels, relatives, strangers, m, rng):
    labels, tree = np.asarray(labels), {}
    for coarse, fine in np.unique(labels, axis=0).tolist():
        members = np.flatnonzero((labels == (coarse, fine)).all(1))
        if len(members) >= m:
            tree.setdefault(coarse, {})[fine] = members
    homes = [c for c in tree if len(tree[c]) >= relatives]
    size = np.array([len(tree[c]) for c in homes])
    home = rng.choice(homes, p=size / size.sum())
    chosen = [tree[home][f] for f in rng.choice(list(tree[home]), relatives, replace=False)]
    for away in rng.choice([c for c in tree if c != home], strangers, replace=False):
        chosen.append(tree[away][rng.choice(list(tree[away]))])
    return np.concatenate([rng.choice(members, m, replace=False) for members in chosen]).tolist()
