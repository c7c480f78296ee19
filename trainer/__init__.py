"""trainer: what runs in the image, on every node. Never imports kitctl."""
