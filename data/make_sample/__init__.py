"""The sample competition's factory: programs of the zoo, their labels, splits and files (``make sample``)."""
