"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: answer_upside_down
# cell: precision_notes
# fails: test_precision_notes
# says: THE LIST UPSIDE DOWN
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(reversed(worst_first), start=1):
        if positive:
            found += 1
            notes.append(Fraction(found, place))
    return notes[::-1]


# answer: batch_positives
# cell: weighted_ap
# fails: test_weighted_ap
# says: batch-positives
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum()


# answer: discount_by_place
# cell: discounted_ap
# fails: test_discounted_ap
# says: DISCOUNTED BY PLACE
def discounted_ap(row, gamma):
    places = [place for place, positive in enumerate(row, start=1) if positive]
    weights = [gamma**(place - 1) for n, place in enumerate(places)]
    return sum(w * Fraction(n, place) for n, (w, place) in enumerate(zip(weights, places), start=1)) / sum(weights)


# answer: discount_off_by_one
# cell: discounted_ap
# fails: test_discounted_ap
# says: THE EXPONENT OFF BY ONE
def discounted_ap(row, gamma):
    places = [place for place, positive in enumerate(row, start=1) if positive]
    weights = [gamma**(n + 1) for n, place in enumerate(places)]
    return sum(w * Fraction(n, place) for n, (w, place) in enumerate(zip(weights, places), start=1)) / len(places)


# answer: discount_over_positives
# cell: discounted_ap
# fails: test_discounted_ap
# says: DIVIDED BY THE NUMBER OF POSITIVES
def discounted_ap(row, gamma):
    places = [place for place, positive in enumerate(row, start=1) if positive]
    weights = [gamma**n for n, place in enumerate(places)]
    return sum(w * Fraction(n, place) for n, (w, place) in enumerate(zip(weights, places), start=1)) / len(places)


# answer: every_place
# cell: precision_notes
# fails: test_precision_notes
# says: PRECISION AT EVERY PLACE
def precision_notes(worst_first):
    best_first = worst_first[::-1]
    return [Fraction(sum(best_first[:n]), n) for n in range(1, len(best_first) + 1)]


# answer: every_same_camera_removed
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: EVERY SAME CAMERA REMOVED
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = cameras != cameras[q], same_car
        if wanted[keep].any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)


# answer: first_place_lost
# cell: lowest_ap
# fails: test_lowest_ap
# says: THE FIRST PLACE LOST
def lowest_ap(positives, gallery):
    return sum(Fraction(k, gallery - positives + k) for k in range(1, positives + 1)) / positives


# answer: floats
# cell: precision_notes
# fails: test_precision_notes
# says: exact fractions are asked for
def precision_notes(worst_first):
    best_first = worst_first[::-1]
    return [sum(best_first[:n]) / n for n in range(1, len(best_first) + 1) if best_first[n - 1]]


# answer: found_too_late
# cell: precision_notes
# fails: test_precision_notes
# says: THE FIND ITSELF NOT COUNTED
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(reversed(worst_first), start=1):
        if positive:
            found += 1
            notes.append(Fraction(found - 1, place))
    return notes


# answer: hits_not_counted
# cell: lowest_ap
# fails: test_lowest_ap
# says: THE HITS NOT COUNTED
def lowest_ap(positives, gallery):
    return (1 + sum(Fraction(1, gallery - positives + k) for k in range(2, positives + 1))) / positives


# answer: lowest_in_floats
# cell: lowest_ap
# fails: test_lowest_ap
# says: an exact fraction is asked for
def lowest_ap(positives, gallery):
    return (1 + sum(k / (gallery - positives + k) for k in range(2, positives + 1))) / positives


# answer: map_batch_positives
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: batch-positives
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    total, positives = 0.0, 0
    for q in range(len(embeddings)):
        same_car = labels == labels[q]
        keep = ~(same_car & (cameras == cameras[q]))
        if same_car[keep].any():
            found = int(same_car[keep].sum())
            total += found * float(average_precision((embeddings[keep] @ embeddings[q])[None], same_car[keep][None]))
            positives += found
    return total / positives


# answer: no_discount
# cell: discounted_ap
# fails: test_discounted_ap
# says: NO DISCOUNT
def discounted_ap(row, gamma):
    places = [place for place, positive in enumerate(row, start=1) if positive]
    weights = [gamma**0 for n, place in enumerate(places)]
    return sum(w * Fraction(n, place) for n, (w, place) in enumerate(zip(weights, places), start=1)) / sum(weights)


# answer: no_weights
# cell: weighted_ap
# fails: test_weighted_ap
# says: NO WEIGHTS
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return ((weights > 0) * among_positives / among_all).sum(1) / (weights > 0).sum(1)


# answer: over_positives
# cell: weighted_ap
# fails: test_weighted_ap
# says: DIVIDED BY THE NUMBER OF POSITIVES
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / (weights > 0).sum(1)


# answer: overall_rank
# cell: weighted_ap
# fails: test_weighted_ap
# says: overall-rank
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_all / among_all).sum(1) / weights.sum(1)


# answer: query_left_in
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: query-left-in
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = ~(same_car & (cameras == cameras[q])) | itself, same_car
        if wanted[keep].any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)


# answer: recall
# cell: precision_notes
# fails: test_precision_notes
# says: RECALL FOR PRECISION
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(reversed(worst_first), start=1):
        if positive:
            found += 1
            notes.append(Fraction(found, sum(worst_first)))
    return notes


# answer: rows_exchanged
# cell: two_rows
# fails: test_two_rows
# says: ORDER OF THE ANSWER
def two_rows():
    return [place in (2, 3) for place in range(1, 13)], [place in (1, 12) for place in range(1, 13)]


# answer: same_camera_negative
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: SAME CAMERA COUNTED AS NEGATIVE
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = ~itself, same_car & (cameras != cameras[q])
        if wanted[keep].any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)


# answer: same_camera_positive
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: SAME CAMERA COUNTED AS POSITIVE
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = ~itself, same_car
        if wanted[keep].any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)


# answer: self_counted
# cell: weighted_ap
# fails: test_weighted_ap
# says: self-counted
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum(1)


# answer: ties_ahead
# cell: weighted_ap
# fails: test_weighted_ap
# says: ties-ahead
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 1 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum(1)


# answer: ties_behind
# cell: weighted_ap
# fails: test_weighted_ap
# says: ties-behind
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum(1)


# answer: upside_down
# cell: precision_notes
# fails: test_precision_notes
# says: reversed
def precision_notes(worst_first):
    notes, found = [], 0
    for place, positive in enumerate(worst_first, start=1):
        if positive:
            found += 1
            notes.append(Fraction(found, place))
    return notes


# answer: weights_in_ranks
# cell: weighted_ap
# fails: test_weighted_ap
# says: WEIGHTS IN THE RANKS
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * (1 + (ahead * weights[:, None, :]).sum(2)) / among_all).sum(1) / weights.sum(1)


# answer: zero_for_lonely_cars
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: ZERO FOR NO POSITIVES
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision

    values = []
    for q in range(len(embeddings)):
        same_car, itself = labels == labels[q], torch.arange(len(labels)) == q
        keep, wanted = ~(same_car & (cameras == cameras[q])), same_car
        if True:
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], wanted[keep][None]).nan_to_num(0)))
    return sum(values) / len(values)


# answer: zero_for_no_positives
# cell: weighted_ap
# fails: test_weighted_ap
# says: ZERO FOR NO POSITIVES
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * (weights > 0)[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum(1).clamp(min=1e-9)


# answer: weights_everywhere
# cell: weighted_ap
# fails: test_weighted_ap
# says: WEIGHTS IN THE RANKS
def weighted_ap(scores, weights):
    gaps = scores[:, None, :] - scores[:, :, None]
    ahead = (gaps > 0).double() + 0.5 * (gaps == 0)
    ahead = ahead * (1 - torch.eye(scores.shape[1], dtype=torch.float64))
    among_all, among_positives = 1 + ahead.sum(2), 1 + (ahead * weights[:, None, :]).sum(2)
    return (weights * among_positives / among_all).sum(1) / weights.sum(1)


# answer: camera_removed
# cell: other_cameras_map
# fails: test_other_cameras_map
# says: EVERY SAME CAMERA
def other_cameras_map(embeddings, labels, cameras):
    from smoothap_nb import average_precision
    values = []
    for q in range(len(embeddings)):
        keep = cameras != cameras[q]
        positive = labels[keep] == labels[q]
        if positive.any():
            values.append(float(average_precision((embeddings[keep] @ embeddings[q])[None], positive[None])))
    return sum(values) / len(values)


# answer: range_ends_early
# cell: lowest_ap
# fails: test_lowest_ap
# says: 2-lowest_ap-3
def lowest_ap(positives, gallery):
    return Fraction(1, positives) * (1 + sum(Fraction(k, gallery - positives + k) for k in range(2, positives)))
