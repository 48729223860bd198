# cell: push
# fails: test_push
# says: sign
def push(w, relevance):
    own = torch.nonzero(relevance)[:, 0]
    return -w.sum(0).index_add(0, own, -w.sum(1))
