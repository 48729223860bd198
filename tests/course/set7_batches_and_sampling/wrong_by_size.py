# cell: draw_classes
# fails: test_draw_classes
# says: draws in proportion to the size
def draw_classes(sizes, count, rng):
    weight = np.asarray(sizes, dtype=float)
    return rng.choice(len(sizes), count, replace=False, p=weight / weight.sum()).tolist()
