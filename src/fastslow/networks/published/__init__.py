"""The structure of published baselines; the default network never imports it."""
