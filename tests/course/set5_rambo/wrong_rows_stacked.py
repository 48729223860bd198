# cell: extended
# fails: test_extended
# says: rows stacked
def extended(batches, keep):
    newest_first = list(reversed(batches))[: keep + 1]
    return torch.stack([d if age == 0 else d.detach() for age, (d, _) in enumerate(newest_first)]), torch.stack([p for _, p in newest_first])
