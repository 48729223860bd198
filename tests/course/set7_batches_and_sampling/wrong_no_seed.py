# cell: epoch
# fails: test_epoch
# says: another seed gives the same epoch
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(0)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes > 1])
    batches = [usable[i:i + classes] for i in range(0, len(usable), classes)]
    short = classes - len(batches[-1])
    if short:
        batches[-1] = np.concatenate([batches[-1], rng.choice(np.setdiff1d(usable, batches[-1]), short, replace=False)])

    def images(name):
        members = np.flatnonzero(labels == name)
        if len(members) >= m:
            return rng.choice(members, m, replace=False)
        return np.concatenate([members, rng.choice(members, m - len(members))])
    return [np.concatenate([images(name) for name in batch]).tolist() for batch in batches]
