"Wrong answers that somebody gave: each section is a whole submission, its cells, the checks that fail, and what they say."

# answer: a_graph_in_the_first_pass
# cell: cached_gradient
# fails: test_cached_gradient
# says: THE FIRST PASS KEPT A GRAPH
def cached_gradient(network, pieces, loss):
    states, kept = [], []
    for piece in pieces:
        states.append(torch.get_rng_state())
        kept.append(network(piece))
    whole = torch.cat(kept).detach().requires_grad_()
    value = loss(whole)
    value.backward()
    for piece, state, g in zip(pieces, states, whole.grad.split([len(piece) for piece in pieces])):
        torch.set_rng_state(state)
        network(piece).backward(g)
    return float(value.detach())


# answer: activations_of_all
# cell: held
# fails: test_held
# says: 9-held-5
def held(B, b, D, a, M):
    numbers = B * a + B * D + B * B, B * a + 2 * B * D + B * B, B * a + (B + M) * D + B * (B + M)
    return tuple(4 * n / 1e6 for n in numbers)


# answer: all_at_once
# cell: cached_gradient
# fails: test_cached_gradient
# says: THE WHOLE BATCH WENT THROUGH AT ONCE
def cached_gradient(network, pieces, loss):
    value = loss(network(torch.cat(pieces)))
    value.backward()
    return float(value.detach())


# answer: ages_from_zero
# cell: ages
# fails: test_ages
# says: 9-ages-1
def ages(batch, size, step):
    return [age for age in range(step) for _ in range(batch)][:size]


# answer: bytes_for_numbers
# cell: largest_batch
# fails: test_largest_batch
# says: 9-largest_batch-4
def largest_batch(budget, b, D, a):
    room = budget - b * a
    return math.isqrt(room + D * D) - D if room >= 0 else 0


# answer: easy_whole
# cell: perfect_pieces
# fails: test_perfect_pieces
# says: THE WHOLE IS TOO GOOD
def perfect_pieces():
    return [0, 10, 90, 100, 180, 190, 270, 280], [0, 0, 1, 1, 2, 2, 3, 3]


# answer: float_root
# cell: largest_batch
# fails: test_largest_batch
# says: 9-largest_batch-9
def largest_batch(budget, b, D, a):
    room = budget // 4 - b * a
    return int(math.sqrt(room + D * D)) - D if room >= 0 else 0


# answer: grad_overwritten
# cell: cached_gradient
# fails: test_cached_gradient
# says: 9-cached_gradient-7
def cached_gradient(network, pieces, loss):
    for p in (*network.parameters(), *(loss.parameters() if hasattr(loss, "parameters") else [])):
        p.grad = None
    rows, states = [], []
    with torch.no_grad():
        for piece in pieces:
            states.append(torch.get_rng_state())
            rows.append(network(piece))
    whole = torch.cat(rows).requires_grad_()
    value = loss(whole)
    value.backward()
    for piece, state, g in zip(pieces, states, whole.grad.split([len(piece) for piece in pieces])):
        torch.set_rng_state(state)
        network(piece).backward(g)
    return float(value.detach())


# answer: imperfect_piece
# cell: perfect_pieces
# fails: test_perfect_pieces
# says: THE FIRST PIECE IS NOT PERFECT
def perfect_pieces():
    return [0, 10, 5, 15, 90, 100, 180, 190], [0, 0, 1, 1, 2, 2, 3, 3]


# answer: linear_axes
# cell: draw_cost
# fails: test_draw_cost
# says: A LINEAR AXIS
def draw_cost(axes, batches, b, D, a, card):
    axes.plot(batches, [4e-6 * (B * a + B * D + B * B) for B in batches], label="all at once")
    axes.plot(batches, [4e-6 * (b * a + 2 * B * D + B * B) for B in batches], label="gradient cache")
    axes.axhline(card, label="the card")
    axes.set(xlabel="batch", ylabel="MB")
    axes.legend()


# answer: no_card
# cell: draw_cost
# fails: test_draw_cost
# says: THE CARD IS MISSING
def draw_cost(axes, batches, b, D, a, card):
    axes.loglog(batches, [4e-6 * (B * a + B * D + B * B) for B in batches], label="all at once")
    axes.loglog(batches, [4e-6 * (b * a + 2 * B * D + B * B) for B in batches], label="gradient cache")
    axes.set(xlabel="batch", ylabel="MB")
    axes.legend()


# answer: numbers_for_bytes
# cell: held
# fails: test_held
# says: 9-held-2
def held(B, b, D, a, M):
    numbers = B * a + B * D + B * B, b * a + 2 * B * D + B * B, B * a + (B + M) * D + B * (B + M)
    return tuple(n / 1e6 for n in numbers)


# answer: oldest_first
# cell: ages
# fails: test_ages
# says: 9-ages-3
def ages(batch, size, step):
    return [age for age in range(1, step + 1) for _ in range(batch)][:size][::-1]


# answer: other_dropout
# cell: cached_gradient
# fails: test_cached_gradient
# says: OTHER RANDOM NUMBERS
def cached_gradient(network, pieces, loss):
    with torch.no_grad():
        whole = torch.cat([network(piece) for piece in pieces])
    whole.requires_grad_()
    value = loss(whole)
    value.backward()
    for piece, g in zip(pieces, whole.grad.split([len(piece) for piece in pieces])):
        network(piece).backward(g)
    return float(value.detach())


# answer: pieces_alone
# cell: cached_gradient
# fails: test_cached_gradient
# says: 9-cached_gradient-1
def cached_gradient(network, pieces, loss):
    values = [loss(network(piece)) for piece in pieces]
    sum(values).backward()
    return float(sum(values).detach())


# answer: proxies_left_out
# cell: cached_gradient
# fails: test_cached_gradient
# says: 9-cached_gradient-4
def cached_gradient(network, pieces, loss):
    rows, states = [], []
    with torch.no_grad():
        for piece in pieces:
            states.append(torch.get_rng_state())
            rows.append(network(piece))
    whole = torch.cat(rows).requires_grad_()
    value = loss(whole)
    gradient, = torch.autograd.grad(value, whole)
    for piece, state, g in zip(pieces, states, gradient.split([len(piece) for piece in pieces])):
        torch.set_rng_state(state)
        network(piece).backward(g)
    return float(value.detach())


# answer: rows_forgotten
# cell: largest_batch
# fails: test_largest_batch
# says: 9-largest_batch-1
def largest_batch(budget, b, D, a):
    room = budget // 4 - b * a
    return math.isqrt(room) if room >= 0 else 0


# answer: ties_whole
# cell: turned_pairs
# fails: test_turned_pairs
# says: 9-turned_pairs-6
def turned_pairs(fresh, stale):
    a, b = (torch.sign(x[:, :, None] - x[:, None, :]) for x in (fresh, stale))
    G = fresh.shape[1]
    return float((a != b).double().sum((1, 2)).mean() / (G * (G - 1)))


# answer: with_the_diagonal
# cell: turned_pairs
# fails: test_turned_pairs
# says: 9-turned_pairs-1
def turned_pairs(fresh, stale):
    a, b = (torch.sign(x[:, :, None] - x[:, None, :]) for x in (fresh, stale))
    return float(((a - b).abs() / 2).mean())


# answer: scaled_by_share
# cell: cached_gradient
# fails: test_cached_gradient
# says: 9-cached_gradient-10
def cached_gradient(network, pieces, loss):
    rows, states = [], []
    with torch.no_grad():
        for piece in pieces:
            states.append(torch.get_rng_state()); rows.append(network(piece))
    whole = torch.cat(rows).requires_grad_()
    value = loss(whole); value.backward()
    for piece, state, g in zip(pieces, states, whole.grad.split([len(p) for p in pieces])):
        torch.set_rng_state(state)
        (network(piece) * g / len(pieces)).sum().backward()
    return float(value.detach())


# answer: one_off_end
# cell: ages
# fails: test_ages
# says: 9-ages-8
def ages(batch, size, step):
    return [a for a in range(1, step) for _ in range(batch)][:size]


# answer: kendall
# cell: turned_pairs
# fails: test_turned_pairs
# says: 9-turned_pairs-8
def turned_pairs(fresh, stale):
    a, b = (torch.sign(x[:, :, None] - x[:, None, :]) for x in (fresh, stale))
    G = fresh.shape[1]
    return float((a * b).sum((1, 2)).mean() / (G * (G - 1)))


# answer: square_table_of_memory
# cell: held
# fails: test_held
# says: 9-held-9
def held(B, b, D, a, M):
    n = B * a + B * D + B * B, b * a + 2 * B * D + B * B, B * a + (B + M) * D + (B + M) ** 2
    return tuple(4 * x / 1e6 for x in n)


# answer: per_query_tensor
# cell: turned_pairs
# fails: test_turned_pairs
# says: A NUMBER FOR EACH
def turned_pairs(fresh, stale):
    a, b = (torch.sign(x[:, :, None] - x[:, None, :]) for x in (fresh, stale))
    G = fresh.shape[1]
    return ((a - b).abs() / 2).sum((1, 2)) / (G * (G - 1))
