"""The tiny model: its words, its synthetic traces, and the supervised warm start that is made of them."""
