# cell: draw_classes
# fails: test_draw_classes
# says: the same class twice in one batch
def draw_classes(sizes, count, rng):
    weight = np.sqrt(np.asarray(sizes, dtype=float))
    return rng.choice(len(sizes), count, p=weight / weight.sum()).tolist()
