"""What traffic is made of: images, arrivals, repeats, and what a cache would make of them."""
