"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: batch_positives
# cell: balanced_map
# fails: test_balanced_map
# says: batch-positives
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    others = ~torch.eye(N, dtype=torch.bool)
    scores, same = (embeddings @ embeddings.T)[others].view(N, N - 1), (labels[:, None] == labels)[others].view(N, N - 1)
    positives = same.sum(1)
    return float((average_precision(scores, same) * positives).nansum() / positives.sum())


# answer: bias_by_size
# cell: batch_bias
# fails: test_batch_bias
# says: every class must be drawn equally often
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        images, kept = rng.permutation(len(labels)), []
        for i in images:
            if int(labels[i]) not in kept:
                kept.append(int(labels[i]))
        chosen = torch.isin(labels, torch.as_tensor(kept[:classes]))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)


# answer: bias_embeddings_uncut
# cell: batch_bias
# fails: test_batch_bias
# says: must see the embeddings and the labels of just the images
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(rng.choice(names, classes, replace=False)))
        values.append(measure(embeddings, labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)


# answer: bias_median
# cell: batch_bias
# fails: test_batch_bias
# says: want the mean over all draws
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(rng.choice(names, classes, replace=False)))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return float(np.median(values)) - measure(embeddings, labels)


# answer: bias_sign
# cell: batch_bias
# fails: test_batch_bias
# says: the difference the wrong way round
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(rng.choice(names, classes, replace=False)))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return measure(embeddings, labels) - sum(values) / draws


# answer: by_size
# cell: draw_classes
# fails: test_draw_classes
# says: draws in proportion to the size
def draw_classes(sizes, count, rng):
    weight = np.asarray(sizes, dtype=float)
    return rng.choice(len(sizes), count, replace=False, p=weight / weight.sum()).tolist()


# answer: drops_classes
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


# answer: drops_small_classes
# cell: epoch
# fails: test_epoch
# says: the epoch drops classes
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes >= m])
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


# answer: equally_likely
# cell: flattery_by_hand
# fails: test_ap_of_the_batch
# says: as if they were equally likely
def ap_of_the_whole():
    return Fraction(1, 3)


def ap_of_the_batch():
    return (1 + Fraction(1, 2) + Fraction(1, 3)) / 3


# answer: expected_place
# cell: expected_ap
# fails: test_expected_ap
# says: the AP of the expected place
def expected_ap(n, k, b):
    return 1 / (1 + b * k / n)


# answer: first_images
# cell: tree_batch
# fails: test_tree_batch
# says: some images are never used
def tree_batch(labels, relatives, strangers, m, rng):
    labels, tree = np.asarray(labels), {}
    for coarse, fine in np.unique(labels, axis=0).tolist():
        members = np.flatnonzero((labels == (coarse, fine)).all(1))
        if len(members) >= m:
            tree.setdefault(coarse, {})[fine] = members
    homes = [c for c in tree if len(tree[c]) >= relatives]
    home = rng.choice(homes)
    chosen = [tree[home][f] for f in rng.choice(list(tree[home]), relatives, replace=False)]
    for away in rng.choice([c for c in tree if c != home], strangers, replace=False):
        chosen.append(tree[away][rng.choice(list(tree[away]))])
    return np.concatenate([members[:m] for members in chosen]).tolist()


# answer: home_by_size
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


# answer: images_for_classes
# cell: batch_bias
# fails: test_batch_bias
# says: batches of two images
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, values = np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = torch.as_tensor(rng.choice(len(labels), classes, replace=False))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)


# answer: images_repeated
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


# answer: jensen
# cell: flattery_by_hand
# fails: test_ap_of_the_batch
# says: the AP of the expected place
def ap_of_the_whole():
    return Fraction(1, 3)


def ap_of_the_batch():
    return Fraction(1, 2)


# answer: largest_home
# cell: tree_batch
# fails: test_tree_batch
# says: both must have their turn
def tree_batch(labels, relatives, strangers, m, rng):
    labels, tree = np.asarray(labels), {}
    for coarse, fine in np.unique(labels, axis=0).tolist():
        members = np.flatnonzero((labels == (coarse, fine)).all(1))
        if len(members) >= m:
            tree.setdefault(coarse, {})[fine] = members
    home = max(tree, key=lambda c: len(tree[c]))
    chosen = [tree[home][f] for f in rng.choice(list(tree[home]), relatives, replace=False)]
    for away in rng.choice([c for c in tree if c != home], strangers, replace=False):
        chosen.append(tree[away][rng.choice(list(tree[away]))])
    return np.concatenate([rng.choice(members, m, replace=False) for members in chosen]).tolist()


# answer: lone_class_as_zero
# cell: balanced_map
# fails: test_balanced_map
# says: the lone image of class 2 counted as 0
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    others = ~torch.eye(N, dtype=torch.bool)
    scores, same = (embeddings @ embeddings.T)[others].view(N, N - 1), (labels[:, None] == labels)[others].view(N, N - 1)
    ap = average_precision(scores, same).nan_to_num(0)
    return float(torch.stack([ap[labels == c].mean() for c in labels.unique()]).mean())


# answer: lone_images
# cell: epoch
# fails: test_epoch
# says: a class with one image is in a batch
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names)
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


# answer: no_relatives
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


# answer: no_seed
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


# answer: plain_mean
# cell: balanced_map
# fails: test_balanced_map
# says: a plain mean over all queries
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    others = ~torch.eye(N, dtype=torch.bool)
    scores, same = (embeddings @ embeddings.T)[others].view(N, N - 1), (labels[:, None] == labels)[others].view(N, N - 1)
    return float(average_precision(scores, same).nanmean())


# answer: query_left_in
# cell: balanced_map
# fails: test_balanced_map
# says: query-left-in
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    ap = average_precision(embeddings @ embeddings.T, labels[:, None] == labels)
    return float(torch.stack([ap[labels == c].mean() for c in labels.unique() if (labels == c).sum() > 1]).mean())


# answer: same_class_twice
# cell: epoch
# fails: test_epoch
# says: fewer or more than `classes` different classes
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes > 1])
    batches = [usable[i:i + classes] for i in range(0, len(usable), classes)]
    short = classes - len(batches[-1])
    if short:
        batches[-1] = np.concatenate([batches[-1], rng.choice(batches[-1], short)])

    def images(name):
        members = np.flatnonzero(labels == name)
        if len(members) >= m:
            return rng.choice(members, m, replace=False)
        return np.concatenate([members, rng.choice(members, m - len(members))])
    return [np.concatenate([images(name) for name in batch]).tolist() for batch in batches]


# answer: seed_in_the_loop
# cell: batch_bias
# fails: test_batch_bias
# says: make one generator from the seed
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    names, values = labels.unique().numpy(), []
    for _ in range(draws):
        chosen = torch.isin(labels, torch.as_tensor(np.random.default_rng(seed).choice(names, classes, replace=False)))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)


# answer: short_last_batch
# cell: epoch
# fails: test_epoch
# says: fewer or more than `classes` different classes
def epoch(labels, classes, m, seed):
    rng = np.random.default_rng(seed)
    names, sizes = np.unique(labels, return_counts=True)
    usable = rng.permutation(names[sizes > 1])
    batches = [usable[i:i + classes] for i in range(0, len(usable), classes)]

    def images(name):
        members = np.flatnonzero(labels == name)
        if len(members) >= m:
            return rng.choice(members, m, replace=False)
        return np.concatenate([members, rng.choice(members, m - len(members))])
    return [np.concatenate([images(name) for name in batch]).tolist() for batch in batches]


# answer: strangers_from_home
# cell: tree_batch
# fails: test_tree_batch
# says: laws 1 and 2
def tree_batch(labels, relatives, strangers, m, rng):
    labels, tree = np.asarray(labels), {}
    for coarse, fine in np.unique(labels, axis=0).tolist():
        members = np.flatnonzero((labels == (coarse, fine)).all(1))
        if len(members) >= m:
            tree.setdefault(coarse, {})[fine] = members
    home = rng.choice([c for c in tree if len(tree[c]) >= relatives])
    chosen = [tree[home][f] for f in rng.choice(list(tree[home]), relatives, replace=False)]
    for away in rng.choice(list(tree), strangers, replace=False):
        chosen.append(tree[away][rng.choice(list(tree[away]))])
    return np.concatenate([rng.choice(members, m, replace=False) for members in chosen]).tolist()


# answer: uniform
# cell: draw_classes
# fails: test_draw_classes
# says: uniform draws
def draw_classes(sizes, count, rng):
    return rng.choice(len(sizes), count, replace=False).tolist()


# answer: with_replacement
# cell: draw_classes
# fails: test_draw_classes
# says: the same class twice in one batch
def draw_classes(sizes, count, rng):
    weight = np.sqrt(np.asarray(sizes, dtype=float))
    return rng.choice(len(sizes), count, p=weight / weight.sum()).tolist()


# answer: without_replacement
# cell: expected_ap
# fails: test_expected_ap
# says: draws without replacement
def expected_ap(n, k, b):
    draws = [x for x in range(min(k, b) + 1) if b - x <= n - k]
    return sum(math.comb(k, x) * math.comb(n - k, b - x) / math.comb(n, b) / (1 + x) for x in draws)


# answer: one_network_twice
# cell: draw_bias
# fails: test_draw_bias
# says: 7-draw_bias-1
def draw_bias(axes, bias, sizes, networks):
    vectors = list(networks.values())
    for label in networks:
        axes.plot(sizes, [bias(vectors[1], classes) for classes in sizes], label=label)
    axes.set(xscale="log", xlabel="classes", ylabel="bias")
    axes.legend()


# answer: nobody_can_tell
# cell: draw_bias
# fails: test_draw_bias
# says: nobody can tell the lines apart
def draw_bias(axes, bias, sizes, networks):
    for label, vectors in networks.items():
        axes.plot(sizes, [bias(vectors, classes) for classes in sizes], label=label)
    axes.set(xscale="log", xlabel="classes", ylabel="bias")


# answer: query_at_the_end
# cell: balanced_map
# fails: test_balanced_map
# says: 7-balanced_map-5
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision
    scores = embeddings @ embeddings.T
    scores.fill_diagonal_(-1)
    same = labels[:, None] == labels
    ap = average_precision(scores, same)
    return float(torch.stack([ap[labels == c].mean() for c in labels.unique() if (labels == c).sum() > 1]).mean())


# answer: sum_ends_early
# cell: expected_ap
# fails: test_expected_ap
# says: AP of the expected place
def expected_ap(n, k, b):
    p = k / n
    return sum(math.comb(b, x) * p ** x * (1 - p) ** (b - x) / (1 + x) for x in range(b))
