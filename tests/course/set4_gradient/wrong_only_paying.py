# cell: push
# fails: test_push
# says: ONLY PAYING
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return torch.zeros(w.shape[1], dtype=w.dtype).index_add(0, own, -w.sum(1))
