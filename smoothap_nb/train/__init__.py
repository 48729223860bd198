"Training: settings, models, the loop, checkpoints."
