"""Reading what the machine, its processes and its GPUs tell, without root and without touching them."""
