"""One model trained in different ways, and the plots of it."""
