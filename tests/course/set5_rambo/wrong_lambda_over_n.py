# cell: percentiles
# fails: test_percentiles
# says: lambda-over-n
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        return (nearest_ranks(distances) - nearest_ranks(distances - ctx.lam * grad)) / (ctx.lam * len(distances)), None
