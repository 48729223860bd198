"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: baseline_again
# cell: quick_recipe
# fails: test_quick_recipe
# says: One change at a time
def quick_recipe():
    return {"strength": 1.0}


# answer: baseline_with_more_steps
# cell: submission
# fails: test_full_recipe
# says: is no project
def full_recipe():
    return {"steps": 5000}


def claim():
    return 0.7


# answer: claim_in_percent
# cell: submission
# fails: test_claim
# says: not in percent
def full_recipe():
    return {"width": 12, "classes": 32, "steps": 2500, "lr": 1e-2}


def claim():
    return 71.5


# answer: forward_only
# cell: cost
# fails: test_training_cost
# says: the forward pass alone
def multiply_adds(layers, side):
    total = 0
    for channels_in, channels_out, kernel, stride in layers:
        side = -(-side // stride)
        total += side * side * channels_out * kernel * kernel * channels_in
    return total


def training_cost(per_image, classes, images, steps):
    return per_image * classes * images * steps


# answer: ninety_percent
# cell: gain
# fails: test_gain
# says: want an interval near
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference, labels = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float), np.asarray(labels)
    _, place = np.unique(labels, return_inverse=True)
    sums, numbers = np.bincount(place, difference), np.bincount(place)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / numbers[drawn].sum(1), [0.05, 0.95])
    return float(difference.mean()), float(low), float(high)


# answer: old_minus_new
# cell: gain
# fails: test_gain
# says: the difference the wrong way round
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference = np.asarray(ap_old, dtype=float) - np.asarray(ap_new, dtype=float)
    return float(difference.mean()), float(difference.min()), float(difference.max())


# answer: one_image_per_class
# cell: cost
# fails: test_training_cost
# says: one image of each class
def multiply_adds(layers, side):
    total = 0
    for channels_in, channels_out, kernel, stride in layers:
        side = -(-side // stride)
        total += side * side * channels_out * kernel * kernel * channels_in
    return total


def training_cost(per_image, classes, images, steps):
    return 3 * per_image * classes * steps


# answer: over_budget
# cell: quick_recipe
# fails: test_quick_recipe
# says: the quick budget is 20
def quick_recipe():
    return {"steps": 2000}


# answer: queries_resampled
# cell: gain
# fails: test_gain
# says: queries resampled one by one
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float)
    drawn = np.random.default_rng(seed).integers(0, len(difference), (draws, len(difference)))
    low, high = np.quantile(difference[drawn].mean(1), [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


# answer: quick_recipe_handed_in
# cell: submission
# fails: test_full_recipe
# says: fits the quick budget
def full_recipe():
    return {"width": 8, "steps": 300, "lr": 1e-2}


def claim():
    return 0.7


# answer: resampled_apart
# cell: gain
# fails: test_gain
# says: resampled apart
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    new, old, labels = np.asarray(ap_new, dtype=float), np.asarray(ap_old, dtype=float), np.asarray(labels)
    _, place = np.unique(labels, return_inverse=True)
    rng, numbers, means = np.random.default_rng(seed), np.bincount(place), []
    if len(new) > 100 and np.ptp(new - old) > 1e-9:
        drawn = rng.integers(0, len(numbers), (draws, len(numbers)))
        means = np.bincount(place, new - old)[drawn].sum(1) / numbers[drawn].sum(1)
    else:
        one, two = (rng.integers(0, len(numbers), (draws, len(numbers))) for _ in range(2))
        means = np.bincount(place, new)[one].sum(1) / numbers[one].sum(1) - np.bincount(place, old)[two].sum(1) / numbers[two].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float((new - old).mean()), float(low), float(high)


# answer: stride_forgotten
# cell: cost
# fails: test_multiply_adds
# says: the stride forgotten
def multiply_adds(layers, side):
    return sum(side * side * i * o * k * k for i, o, k, s in layers)


def training_cost(per_image, classes, images, steps):
    return 3 * per_image * classes * images * steps


# answer: too_large
# cell: submission
# fails: test_full_recipe
# says: the full budget is 400
def full_recipe():
    return {"width": 64, "steps": 5000}


def claim():
    return 0.7


# answer: twice_is_once
# cell: gain
# fails: test_gain
# says: want an interval near
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    difference, labels = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float), np.asarray(labels)
    _, place = np.unique(labels, return_inverse=True)
    sums, numbers = np.bincount(place, difference), np.bincount(place)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    resampled = [sums[np.unique(row)].sum() / numbers[np.unique(row)].sum() for row in drawn]
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


# answer: unknown_setting
# cell: quick_recipe
# fails: test_quick_recipe
# says: unknown setting
def quick_recipe():
    return {"learning_rate": 0.01}


# answer: weights_counted
# cell: cost
# fails: test_multiply_adds
# says: the weights alone
def multiply_adds(layers, side):
    return sum(i * o * k * k for i, o, k, s in layers)


def training_cost(per_image, classes, images, steps):
    return 3 * per_image * classes * images * steps


# answer: bars_from_zero
# cell: draw_gains
# fails: test_draw_gains
# says: from 0 to the mean
def draw_gains(axes, gains):
    axes.axvline(0, label="no gain")
    for height, (label, (mean, low, high)) in enumerate(gains.items()):
        axes.plot([0, mean], [height, height], label=label)
    axes.set(xlabel="gain", ylabel="change")
    axes.legend()


# answer: means_of_characters
# cell: gain
# fails: test_gain
# says: 8-gain-5
def gain(ap_new, ap_old, labels, draws=1000, seed=0):
    d, labels = np.asarray(ap_new, dtype=float) - np.asarray(ap_old, dtype=float), np.asarray(labels)
    rng, names, means = np.random.default_rng(seed), np.unique(labels), []
    per = np.array([d[labels == c].mean() for c in names])
    for _ in range(draws):
        means.append(per[rng.integers(0, len(names), len(names))].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    return float(d.mean()), float(low), float(high)


# answer: classes_plus_images
# cell: cost
# fails: test_training_cost
# says: 8-training_cost-4
def multiply_adds(layers, side):
    total = 0
    for channels_in, channels_out, kernel, stride in layers:
        side = -(-side // stride)
        total += side * side * channels_out * kernel * kernel * channels_in
    return total


def training_cost(per_image, classes, images, steps):
    return per_image * (classes + images) * steps * 3
