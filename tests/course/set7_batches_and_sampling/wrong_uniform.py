# cell: draw_classes
# fails: test_draw_classes
# says: uniform draws
def draw_classes(sizes, count, rng):
    return rng.choice(len(sizes), count, replace=False).tolist()
