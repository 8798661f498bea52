"""A program of your own, ranked by a finished run: predictions, words, and what each choice does to them."""
