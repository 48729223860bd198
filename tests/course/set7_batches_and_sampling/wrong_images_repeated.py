# cell: epoch
# fails: test_epoch
# says: an image comes twice although
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes > 1])
    batches = [usable[i:i + classes] for i in range(0, len(usable), classes)]
    short = classes - len(batches[-1])
    if short:
        batches[-1] = np.concatenate([batches[-1], rng.choice(np.setdiff1d(usable, batches[-1]), short, replace=False)])
    return [np.concatenate([rng.choice(np.flatnonzero(labels == name), m) for name in batch]).tolist() for batch in batches]
