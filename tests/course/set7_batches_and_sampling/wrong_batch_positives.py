# cell: balanced_map
# fails: test_balanced_map
# says: batch-positives
def balanced_map(embeddings, labels):
    from smoothap_nb import average_precision

    N = len(labels)
    others = ~torch.eye(N, dtype=torch.bool)
    scores, same = (embeddings @ embeddings.T)[others].view(N, N - 1), (labels[:, None] == labels)[others].view(N, N - 1)
    positives = same.sum(1)
    return float((average_precision(scores, same) * positives).nansum() / positives.sum())
