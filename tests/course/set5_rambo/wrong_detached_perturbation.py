# cell: percentiles
# fails: test_percentiles
# says: no-perturbation
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        ctx.lam = lam
        ctx.save_for_backward(distances)
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        distances, = ctx.saved_tensors
        moved = distances - ctx.lam * distances.new_zeros(len(distances))
        return (nearest_ranks(distances) - nearest_ranks(moved)) / (ctx.lam * (len(distances) - 1)), None
