"""The search for the fastest configuration of a program: few evaluations, chosen by a model that learns."""
