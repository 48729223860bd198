# cell: batch_bias
# fails: test_batch_bias
# says: batches of two images
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, values = np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = torch.as_tensor(rng.choice(len(labels), classes, replace=False))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)
