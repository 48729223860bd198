# cell: cost
# fails: test_cost
# says: the stride forgotten
def multiply_adds(layers, side):
    return sum(side * side * i * o * k * k for i, o, k, s in layers)


def training_cost(per_image, classes, images, steps):
    return 3 * per_image * classes * images * steps
