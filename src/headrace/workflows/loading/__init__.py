"""The parts of a load run: what is sent, what is counted, how a capacity is searched, what is told."""
