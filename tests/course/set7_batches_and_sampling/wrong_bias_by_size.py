# cell: batch_bias
# fails: test_batch_bias
# says: every class must be drawn equally often
def batch_bias(measure, embeddings, labels, classes, draws, seed):
    rng, names, values = np.random.default_rng(seed), labels.unique().numpy(), []
    for _ in range(draws):
        images, kept = rng.permutation(len(labels)), []
        for i in images:
            if int(labels[i]) not in kept:
                kept.append(int(labels[i]))
        chosen = torch.isin(labels, torch.as_tensor(kept[:classes]))
        values.append(measure(embeddings[chosen], labels[chosen]))
    return sum(values) / draws - measure(embeddings, labels)
