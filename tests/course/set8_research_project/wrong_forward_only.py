# cell: cost
# fails: test_cost
# says: the forward pass alone
def multiply_adds(layers, side):
    total = 0
    for channels_in, channels_out, kernel, stride in layers:
        side = -(-side // stride)
        total += side * side * channels_out * kernel * kernel * channels_in
    return total


def training_cost(per_image, classes, images, steps):
    return per_image * classes * images * steps
