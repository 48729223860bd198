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
