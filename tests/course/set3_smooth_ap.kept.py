"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: batch_positives
# cell: two_temperatures
# fails: test_two_temperatures
# says: batch-positives
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return ratios.sum() / found.sum()


# answer: denominator_detached
# cell: two_temperatures
# fails: test_two_temperatures
# says: a part of the formula was detached
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    found = relevance.sum(1)
    return ((among_positives / (1 + steps.sum(2)).detach() * relevance).sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: first_that_fits
# cell: largest_tau
# fails: test_largest_tau
# says: THE FIRST THAT FITS
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    return next((tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() <= limit), None)


# answer: half_for_itself
# cell: soft_places
# fails: test_soft_places
# says: HALF FOR ITSELF
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None] - delta) / tau)
    return 0.5 + steps.sum(2)


# answer: half_the_reach
# cell: reach
# fails: test_reach
# says: HALF THE REACH
def reach(tau, share):
    return tau * math.acosh(1 / math.sqrt(share))


# answer: item_decides
# cell: two_temperatures
# fails: test_two_temperatures
# says: THE ITEM DECIDED
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, :, None], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: last_that_fits
# cell: largest_tau
# fails: test_largest_tau
# says: THE LAST THAT FITS
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    fits = [tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() <= limit]
    return fits[-1] if fits else None


# answer: lead_outside
# cell: leading_step
# fails: test_leading_step
# says: THE LEAD OUTSIDE THE TEMPERATURE
def leading_step(x, tau, delta):
    return torch.sigmoid(x / tau - delta)


# answer: lead_sign
# cell: leading_step
# fails: test_leading_step
# says: THE LEAD THE WRONG WAY ROUND
def leading_step(x, tau, delta):
    return torch.sigmoid((x + delta) / tau)


# answer: mean_for_max
# cell: largest_tau
# fails: test_largest_tau
# says: MEAN FOR MAXIMUM
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    fits = [tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().mean() <= limit]
    return max(fits) if fits else None


# answer: nanmean
# cell: two_temperatures
# fails: test_two_temperatures
# says: the gradient is NaN
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    return ((among_positives / (1 + steps.sum(2)) * relevance).sum(1) / relevance.sum(1)).nanmean()


# answer: no_abs
# cell: largest_tau
# fails: test_largest_tau
# says: THE ERROR WITHOUT ITS SIGN TAKEN OFF
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    return max((tau for tau in taus if (exact - smooth_ap(scores[valid], relevance[valid], tau)).max() <= limit), default=None)


# answer: no_lead
# cell: soft_places
# fails: test_soft_places
# says: NO LEAD
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    return 1 + steps.sum(2)


# answer: no_one
# cell: soft_places
# fails: test_soft_places
# says: THE ONE FORGOTTEN
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None] - delta) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    return 0 + steps.sum(2)


# answer: not_deaf
# cell: two_pairs
# fails: test_two_pairs
# says: value 3
def two_pairs(tau):
    return (0.0, 5 * tau), (0.0, 0.12 * tau)


# answer: nothing_found
# cell: largest_tau
# fails: test_largest_tau
# says: NOTHING FOUND
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = slice(None)
    exact = average_precision(scores[valid], relevance[valid])
    fits = [tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() <= limit]
    return max(fits) if fits else None


# answer: overall_rank
# cell: two_temperatures
# fails: test_two_temperatures
# says: overall-rank
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + steps.sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: overflow
# cell: leading_step
# fails: test_leading_step
# says: exp overflowed
def leading_step(x, tau, delta):
    e = torch.exp(-(x - delta) / tau)
    return torch.where(e.isinf(), 0.0, 1 / (1 + e))


# answer: places_self_counted
# cell: soft_places
# fails: test_soft_places
# says: self-counted
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None] - delta) / tau)
    return 1 + steps.sum(2)


# answer: places_sign
# cell: soft_places
# fails: test_soft_places
# says: sign
def soft_places(scores, tau, delta):
    steps = torch.sigmoid((scores[:, :, None] - scores[:, None, :] - delta) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    return 1 + steps.sum(2)


# answer: positive_ahead
# cell: two_pairs
# fails: test_two_pairs
# says: THE POSITIVE AHEAD
def two_pairs(tau):
    return (19 * tau, 0.0), (0.12 * tau, 0.0)


# answer: self_counted
# cell: two_temperatures
# fails: test_two_temperatures
# says: self-counted
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau)
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: sign
# cell: two_temperatures
# fails: test_two_temperatures
# says: sign
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, :, None] - scores[:, None, :]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: slope_for_share
# cell: reach
# fails: test_reach
# says: THE LESSON'S BOUND
def reach(tau, share):
    return 2 * tau * math.acosh(1 / (2 * math.sqrt(share * tau)))


# answer: smallest
# cell: largest_tau
# fails: test_largest_tau
# says: THE SMALLEST
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    fits = [tau for tau in taus if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() <= limit]
    return min(fits) if fits else None


# answer: square_forgotten
# cell: reach
# fails: test_reach
# says: THE SQUARE FORGOTTEN
def reach(tau, share):
    return 2 * tau * math.acosh(1 / share)


# answer: stops_early
# cell: largest_tau
# fails: test_largest_tau
# says: STOPPED AT THE FIRST THAT FAILS
def largest_tau(scores, relevance, taus, limit):
    from smoothap_nb import average_precision, smooth_ap

    valid = relevance.any(1)
    exact = average_precision(scores[valid], relevance[valid])
    best = None
    for tau in sorted(taus):
        if (smooth_ap(scores[valid], relevance[valid], tau) - exact).abs().max() > limit:
            break
        best = tau
    return best


# answer: tau_times
# cell: leading_step
# fails: test_leading_step
# says: tau-times
def leading_step(x, tau, delta):
    return torch.sigmoid((x - delta) * tau)


# answer: temperatures_exchanged
# cell: two_temperatures
# fails: test_two_temperatures
# says: TEMPERATURES EXCHANGED
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_negative, tau_positive)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1))[found > 0].mean()


# answer: zero_for_no_positives
# cell: two_temperatures
# fails: test_two_temperatures
# says: ZERO FOR NO POSITIVES
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    tau = torch.where(relevance[:, None, :], tau_positive, tau_negative)
    steps = torch.sigmoid((scores[:, None, :] - scores[:, :, None]) / tau) * (1 - torch.eye(scores.shape[1], dtype=scores.dtype))
    among_positives = 1 + (steps * relevance[:, None, :]).sum(2)
    ratios = among_positives / (1 + steps.sum(2)) * relevance
    found = relevance.sum(1)
    return (ratios.sum(1) / found.clamp(min=1)).mean()


# answer: values_in_the_old_order
# cell: draw_over_tau
# fails: test_draw_over_tau
# says: 3-draw_over_tau-1
def draw_over_tau(axes, taus, measures):
    for label, measure in measures.items():
        values = sorted((float(measure(tau)) for tau in taus), reverse=True)
        axes.plot(sorted(taus), values, label=label)
    axes.set(xscale="log", xlabel="temperature", ylabel="value")
    axes.legend()


# answer: into_another_figure
# cell: draw_over_tau
# fails: test_draw_over_tau
# says: not plt.plot
def draw_over_tau(axes, taus, measures):
    from matplotlib import pyplot as plt
    for label, measure in measures.items():
        plt.plot(sorted(taus), [float(measure(tau)) for tau in sorted(taus)], label=label)
    plt.xscale("log")
    plt.legend()


# answer: no_labels
# cell: draw_over_tau
# fails: test_draw_over_tau
# says: no line is called
def draw_over_tau(axes, taus, measures):
    for label, measure in measures.items():
        axes.plot(sorted(taus), [float(measure(tau)) for tau in sorted(taus)])
    axes.legend(measures)
    axes.set(xscale="log", xlabel="temperature", ylabel="value")


# answer: other_axis
# cell: soft_places
# fails: test_soft_places
# says: 3-soft_places-5
def soft_places(scores, tau, delta):
    gaps = scores[:, None, :] - scores[:, :, None]
    steps = torch.sigmoid((gaps - delta) / tau)
    return 1 + steps.sum(1)


# answer: a_loss_over_the_batch
# cell: two_temperatures
# fails: test_two_temperatures
# says: ONE MINUS THE ANSWER
def two_temperatures(scores, relevance, tau_positive, tau_negative):
    n = 0; total = 0
    for s, r in zip(scores, relevance):
        for i in range(len(s)):
            if r[i]:
                a = b = 1
                for j in range(len(s)):
                    if j != i:
                        g = torch.sigmoid((s[j] - s[i]) / (tau_positive if r[j] else tau_negative))
                        b = b + g
                        if r[j]: a = a + g
                total = total + a / b; n += 1
    return 1 - total / n


# answer: root_for_its_inverse
# cell: reach
# fails: test_reach
# says: math.acosh(math.sqrt(share))
def reach(tau, share):
    x = math.acosh(math.sqrt(share)) * 2 * tau
    return x
