"""The public problem sets, and the decoders between them and the policy."""
