"Losses: differentiable stand-ins for ranking metrics."
