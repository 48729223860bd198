# cell: extended
# fails: test_extended
# says: everything detached
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.cat([d.detach() for d, _ in newest_first]).requires_grad_(), torch.cat([p for _, p in newest_first])
