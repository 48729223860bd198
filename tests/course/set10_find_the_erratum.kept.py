"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: a_line_that_holds
# cell: two_wrong_lines
# fails: test_two_wrong_lines
# says: LINE 3 HOLDS
def two_wrong_lines():
    return {2: [0, 0, 0, 1], 3: [1, 0, 1, 0]}


# answer: agreeing_means
# cell: disagreement
# fails: test_disagreement
# says: BOTH MEANS AGREE
def disagreement():
    return [[0], [0, 0]], [[1], [1, 1]]


# answer: all_places
# cell: area_ap
# fails: test_area_ap
# says: 10-area_ap-3
def area_ap(row, total):
    return sum(Fraction(sum(row[:k]), k) for k in range(1, len(row) + 1)) / total


# answer: ap_for_the_printed_limit
# cell: with_itself
# fails: test_with_itself
# says: 10-with_itself-1
def with_itself(places):
    return sum(Fraction(k, place) for k, place in enumerate(places, start=1)) / len(places)


# answer: a_harmless_row
# cell: two_wrong_lines
# fails: test_two_wrong_lines
# says: LINE 4 HOLDS
def two_wrong_lines():
    return {2: [0, 0, 0, 1], 4: [1, 1]}


# answer: both_agree
# cell: turned_round
# fails: test_turned_round
# says: BOTH AGREE
def turned_round():
    return [1, 0, 1, 0], [0, 1, 1, 0]


# answer: empty_queries_counted
# cell: two_means
# fails: test_two_means
# says: empty-queries
def two_means(ahead, K):
    shares = [sum(r >= K for r in row) / max(len(row), 1) for row in ahead]
    everything = [r >= K for row in ahead for r in row]
    return sum(shares) / len(shares), sum(everything) / len(everything)


# answer: exact_sizes
# cell: property_one
# fails: test_property_one
# says: 10-property_one-4
def property_one(levels, weights):
    shares = [w / max(levels.count(p), 1) for p, w in enumerate(weights, start=1)]
    return [sum(shares[:level]) for level in levels]


# answer: half_for_itself
# cell: positive_ranks
# fails: test_positive_ranks
# says: 10-positive_ranks-4
def positive_ranks(scores, relevance, step):
    return (.5 + (step(scores[None, :] - scores[:, None]) * relevance).sum(1)) * relevance


# answer: harmless_scores
# cell: wrong_step
# fails: test_wrong_step
# says: TOO MILD A ROW
def wrong_step():
    return 3, [.9, .8, .7], [1, 0, 1]


# answer: itself_in_the_places
# cell: positive_ranks
# fails: test_positive_ranks
# says: self-counted
def positive_ranks(scores, relevance, step):
    return (1 + (step(scores[None, :] - scores[:, None]) * relevance).sum(1)) * relevance


# answer: linear_axis
# cell: draw_limit
# fails: test_draw_limit
# says: ON A LINEAR AXIS
def draw_limit(axes, scores, relevance, taus):
    from smoothap_nb import average_precision, smooth_ap

    s, y = scores[None], relevance[None]
    gaps = scores[None, :] - scores[:, None]
    axes.plot(taus, [float(smooth_ap(s, y, tau)) for tau in taus], label="j ≠ i")
    tables = [torch.sigmoid(gaps / tau) for tau in taus]
    axes.plot(taus, [float(((1 + (g * relevance).sum(1)) / (1 + g.sum(1)))[relevance].mean()) for g in tables], label="printed")
    axes.plot(taus, [float(average_precision(s, y))] * len(taus), label="AP")
    axes.set(xlabel="tau", ylabel="AP")
    axes.legend()


# answer: one_curve_twice
# cell: draw_limit
# fails: test_draw_limit
# says: THE CURVE 'printed' IS MISSING
def draw_limit(axes, scores, relevance, taus):
    from smoothap_nb import average_precision, smooth_ap

    s, y = scores[None], relevance[None]
    for label in ("right", "printed"):
        axes.semilogx(taus, [float(smooth_ap(s, y, tau)) for tau in taus], label=label)
    axes.axhline(float(average_precision(s, y)), label="AP")
    axes.set(xlabel="tau", ylabel="AP")
    axes.legend()


# answer: own_level
# cell: property_one
# fails: test_property_one
# says: 10-property_one-1
def property_one(levels, weights):
    return [sum(weights[:level]) / max(sum(m >= level for m in levels), 1) if level else 0 for level in levels]


# answer: printed_precision
# cell: area_ap
# fails: test_area_ap
# says: 10-area_ap-2
def area_ap(row, total):
    return sum(Fraction(y, total) for y in row)


# answer: rows_exchanged
# cell: turned_round
# fails: test_turned_round
# says: THE TWO ROWS EXCHANGED
def turned_round():
    return [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]


# answer: shown_positives
# cell: area_ap
# fails: test_area_ap
# says: 10-area_ap-1
def area_ap(row, total):
    return sum(Fraction(sum(row[:k]), k) for k in range(1, len(row) + 1) if row[k - 1]) / max(sum(row), 1)


# answer: strictly_more
# cell: two_means
# fails: test_two_means
# says: 10-two_means-2
def two_means(ahead, K):
    shares = [sum(r > K for r in row) / len(row) for row in ahead if row]
    everything = [r > K for row in ahead for r in row]
    return sum(shares) / len(shares), sum(everything) / len(everything)


# answer: too_fair
# cell: too_much_worth
# fails: test_too_much_worth
# says: TOO LITTLE IS HANDED OUT
def too_much_worth():
    return [3, 2, 1], [.4, .3, .3]


# answer: whole_competitor
# cell: with_itself
# fails: test_with_itself
# says: 10-with_itself-2
def with_itself(places):
    return sum(Fraction(k + 1, place + 1) for k, place in enumerate(places, start=1)) / len(places)


# answer: wrong_step_two
# cell: wrong_step
# fails: test_wrong_step
# says: LINE 2 HOLDS
def wrong_step():
    return 2, [.9, .8, .7, .6], [0, 0, 0, 1]


# answer: zero_based_places
# cell: area_ap
# fails: test_area_ap
# says: 10-area_ap-6
def area_ap(row, total):
    return sum(Fraction(sum(row[:k + 1]), k + 2) for k in range(len(row)) if row[k]) / total


# answer: recall_times_precision
# cell: area_ap
# fails: test_area_ap
# says: 10-area_ap-7
def area_ap(row, total):
    return sum(Fraction(sum(row[:k]), total) * Fraction(sum(row[:k]), k) for k in range(1, len(row) + 1))


# answer: counted_from_zero
# cell: with_itself
# fails: test_with_itself
# says: 10-with_itself-7
def with_itself(places):
    return sum((k + .5) / (p + .5) for k, p in enumerate(places)) / len(places)


# answer: not_divided
# cell: property_one
# fails: test_property_one
# says: 10-property_one-6
def property_one(levels, weights):
    return [sum(weights[:l]) for l in levels]


# answer: code_over_queries
# cell: two_means
# fails: test_two_means
# says: 10-two_means-7
def two_means(ahead, K):
    rows = [row for row in ahead if row]
    return sum(sum(r >= K for r in row) / len(row) for row in rows) / len(rows), sum(sum(r >= K for r in row) for row in rows) / len(rows)
