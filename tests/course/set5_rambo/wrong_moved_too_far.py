# cell: percentiles
# fails: test_percentiles
# says: lambda-too-far
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        lam = ctx.lam * (len(distances) - 1)
        return (nearest_ranks(distances) - nearest_ranks(distances - lam * grad)) / (lam * (len(distances) - 1)), None
