"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: arriving_ignored
# cell: log_precision
# fails: test_log_precision
# says: WHAT ARRIVES IS IGNORED
class LogPrecision(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, relevance, tau):
        own = torch.nonzero(relevance)[:, 0]
        gaps = (scores[None, :] - scores[own][:, None]) / tau
        steps = 0.5 + torch.atan(gaps) / math.pi
        A, R = 0.5 + steps[:, own].sum(1), 0.5 + steps.sum(1)
        w = 1 / (math.pi * tau * (1 + gaps**2)) * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None]) / len(own)
        w[torch.arange(len(own)), own] = 0
        ctx.save_for_backward(w.sum(0).index_add(0, own, -w.sum(1)))
        return torch.log(A / R).mean()

    @staticmethod
    def backward(ctx, arriving):
        gradient, = ctx.saved_tensors
        return gradient, None, None


# answer: descent
# cell: log_precision
# fails: test_log_precision
# says: THE GRADIENT OF -J
class LogPrecision(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, relevance, tau):
        own = torch.nonzero(relevance)[:, 0]
        gaps = (scores[None, :] - scores[own][:, None]) / tau
        steps = 0.5 + torch.atan(gaps) / math.pi
        A, R = 0.5 + steps[:, own].sum(1), 0.5 + steps.sum(1)
        w = 1 / (math.pi * tau * (1 + gaps**2)) * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None]) / len(own)
        w[torch.arange(len(own)), own] = 0
        ctx.save_for_backward(w.sum(0).index_add(0, own, -w.sum(1)))
        return torch.log(A / R).mean()

    @staticmethod
    def backward(ctx, arriving):
        gradient, = ctx.saved_tensors
        return -arriving * gradient, None, None


# answer: length_forgotten
# cell: through_the_length
# fails: test_through_the_length
# says: THE LENGTH FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho * (g - n * (n @ g))


# answer: lessons_objective
# cell: weights
# fails: test_weights
# says: THE LESSON'S OBJECTIVE
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], ((R - A) / R**2)[:, None], (-A / R**2)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))


# answer: mean_forgotten
# cell: weights
# fails: test_weights
# says: THE MEAN FORGOTTEN
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None])
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))


# answer: minus_j
# cell: weights
# fails: test_weights
# says: THE GRADIENT OF -J
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / R - 1 / A)[:, None], (1 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))


# answer: negatives_alone
# cell: soft_counts
# fails: test_soft_counts
# says: NEGATIVES ALONE BELOW THE LINE
def soft_counts(scores, relevance, tau):
    steps = 0.5 + torch.atan((scores[None, :] - scores[relevance][:, None]) / tau) / math.pi
    return 0.5 + steps[:, relevance].sum(1), 1 + steps[:, ~relevance].sum(1)


# answer: nobody_pays
# cell: push
# fails: test_push
# says: NOBODY PAYS
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return w.sum(0)


# answer: only_paying
# cell: push
# fails: test_push
# says: ONLY PAYING
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return torch.zeros(w.shape[1], dtype=w.dtype).index_add(0, own, -w.sum(1))


# answer: pi_forgotten
# cell: step_slope
# fails: test_step_slope
# says: PI FORGOTTEN
def step_slope(x, tau):
    return 1 / (tau * (1 + (x / tau) ** 2))


# answer: projected_with_q
# cell: through_the_length
# fails: test_through_the_length
# says: PROJECTED WITH q
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho / u.norm() * (g - rho * n * (rho * n @ g))


# answer: projection_forgotten
# cell: through_the_length
# fails: test_through_the_length
# says: THE PROJECTION FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return rho / u.norm() * g


# answer: push_sign
# cell: push
# fails: test_push
# says: sign
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return -w.sum(0).index_add(0, own, -w.sum(1))


# answer: rho_forgotten
# cell: through_the_length
# fails: test_through_the_length
# says: RHO FORGOTTEN
def through_the_length(u, g, rho):
    n = u / u.norm()
    return (g - n * (n @ g)) / u.norm()


# answer: rows_added
# cell: push
# fails: test_push
# says: PAID TWICE THE WRONG WAY
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return w.sum(0).index_add(0, own, w.sum(1))


# answer: second_term_left_out
# cell: weights
# fails: test_weights
# says: positives-only
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A)[:, None], (0 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table.index_put((torch.arange(len(own)), own), torch.zeros((), dtype=table.dtype))


# answer: self_counted
# cell: soft_counts
# fails: test_soft_counts
# says: self-counted
def soft_counts(scores, relevance, tau):
    steps = 0.5 + torch.atan((scores[None, :] - scores[relevance][:, None]) / tau) / math.pi
    return 1 + steps[:, relevance].sum(1), 1 + steps.sum(1)


# answer: sigmoid_counts
# cell: soft_counts
# fails: test_soft_counts
# says: THE SIGMOID
def soft_counts(scores, relevance, tau):
    steps = torch.sigmoid((scores[None, :] - scores[relevance][:, None]) / tau)
    return 0.5 + steps[:, relevance].sum(1), 0.5 + steps.sum(1)


# answer: sigmoid_slope
# cell: step_slope
# fails: test_step_slope
# says: THE SIGMOID'S SLOPE
def step_slope(x, tau):
    return torch.sigmoid(x / tau) * torch.sigmoid(-x / tau) / tau


# answer: sign
# cell: soft_counts
# fails: test_soft_counts
# says: sign
def soft_counts(scores, relevance, tau):
    steps = 0.5 + torch.atan((scores[relevance][:, None] - scores[None, :]) / tau) / math.pi
    return 0.5 + steps[:, relevance].sum(1), 0.5 + steps.sum(1)


# answer: tau_forgotten
# cell: step_slope
# fails: test_step_slope
# says: tau-forgotten
def step_slope(x, tau):
    return 1 / (math.pi * (1 + (x / tau) ** 2))


# answer: tau_outside_square
# cell: step_slope
# fails: test_step_slope
# says: TAU WHERE IT DOES NOT BELONG
def step_slope(x, tau):
    return 1 / (math.pi * tau * (1 + x**2))


# answer: weights_self_counted
# cell: weights
# fails: test_weights
# says: self-counted
def weights(slopes, relevance, A, R):
    table = slopes * torch.where(relevance[None, :], (1 / A - 1 / R)[:, None], (-1 / R)[:, None]) / len(A)
    own = torch.nonzero(relevance)[:, 0]
    return table


# answer: columns_paid_back
# cell: push
# fails: test_push
# says: 4-push-4
def push(w, relevance):
    gradient = w.sum(0)
    gradient[relevance] -= w.sum(0)[relevance]
    return gradient


# answer: other_way_round
# cell: soft_counts
# fails: test_soft_counts
# says: THE DIFFERENCE THE WRONG WAY
def soft_counts(scores, relevance, tau):
    D = scores[:, None] - scores[None, :]
    S = 0.5 + torch.atan(D / tau) / math.pi
    A = 1 + S[relevance][:, relevance].sum(1) - 0.5
    return A, A + S[relevance][:, ~relevance].sum(0)
