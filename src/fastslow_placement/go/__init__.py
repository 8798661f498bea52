"""GO: the policy, its proposals, PPO and zero-shot decisions."""
