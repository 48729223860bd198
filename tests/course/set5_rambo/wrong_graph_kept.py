# cell: extended
# fails: test_extended
# says: an old batch that gets a gradient
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.cat([d for d, _ in newest_first]), torch.cat([p for _, p in newest_first])
