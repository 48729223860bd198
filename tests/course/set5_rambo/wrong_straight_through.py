# cell: percentiles
# fails: test_percentiles
# says: straight-through
class Percentiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distances, lam):
        return (nearest_ranks(distances) - 1).to(distances.dtype) / (len(distances) - 1)

    @staticmethod
    def backward(ctx, grad):
        return grad, None
