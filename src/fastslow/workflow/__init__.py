"""What ``make submit`` runs: presets, the steps of a run, their order and the pools that run them."""
